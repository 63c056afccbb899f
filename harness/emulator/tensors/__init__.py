"""The emulated device's tensors and storages, and the events that tell what ops did to them."""
