// Visible words of the main part whose contrast with their ground is below 4.5:1.
() => {
  const parse = (text) => (text.match(/[\d.]+/g) || []).map(Number);
  const linear = (v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  const luminance = (colour) => {
    const [r, g, b] = colour.map((v) => linear(v / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const over = (top, below) => {
    const alpha = top.length > 3 ? top[3] : 1;
    return [0, 1, 2].map((i) => top[i] * alpha + below[i] * (1 - alpha));
  };
  const ground = (node) => {
    const layers = [];
    for (let at = node; at; at = at.parentElement) {
      const colour = parse(getComputedStyle(at).backgroundColor);
      if (colour.length === 3 || colour[3] > 0) layers.push(colour);
      if (colour.length === 3) break;
    }
    return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255]);
  };
  // Words on a shaded area of a chart, which Plotly inks for its shade; disabled controls; and
  // sliders, whose label hangs off the thumb that it is a part of, or greys when there is no choice.
  const left_out = [
    '[data-testid="stIconMaterial"]', "[disabled]", '[aria-disabled="true"]', '[role="slider"]',
    ".treemaplayer", ".heatmaplayer", ".hm", '[data-testid="stSliderThumbValue"]', '[data-testid="stSlider"]',
  ].join(", ");
  const poor = [];
  const main = document.querySelector('[data-testid="stMain"]');
  const walker = document.createTreeWalker(main, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode.textContent.trim();
    const node = walker.currentNode.parentElement;
    const box = node.getBoundingClientRect();
    if (!text || !box.width || !box.height || node.closest(left_out)) continue;
    const style = getComputedStyle(node);
    if (style.visibility === "hidden" || style.opacity === "0") continue;
    const below = ground(node);
    const ink = over(parse(node instanceof SVGElement ? style.fill : style.color), below);
    const [bright, dark] = [luminance(ink), luminance(below)].sort((a, b) => b - a);
    const ratio = (bright + 0.05) / (dark + 0.05);
    if (ratio < 4.5) poor.push(`${ratio.toFixed(2)} ${text.slice(0, 40)} <${node.tagName}>`);
  }
  return poor;
}
