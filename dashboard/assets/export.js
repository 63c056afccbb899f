// Draws the pages of an export from the data inside it. All words are set as text, never as HTML.
"use strict";
(async () => {
  if (!("DecompressionStream" in window)) {
    document.getElementById("page").textContent = "This page needs a newer browser: Chrome 80, Firefox 113, Safari 16.4 or later.";
    return;
  }

  async function unpack(id) {
    const packed = atob(document.getElementById(id).textContent.trim());
    const bytes = Uint8Array.from(packed, (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).text();
  }

  // The policy of the page names the hash of this script, so that it may run although it is added late.
  if (document.getElementById("plotly")) document.head.append(make("script", await unpack("plotly")));
  const data = JSON.parse(await unpack("data"));
  const block = (one) => {
    if (typeof one === "number") return data.blocks[one];
    if (one.type === "details") return { ...one, blocks: one.blocks.map(block) };
    return { ...one, groups: one.groups.map((group) => group.map(block)) };
  };
  for (const page of [...data.pages, ...data.runs]) page.blocks = page.blocks.map(block);
  const root = document.getElementById("page");
  const dark = matchMedia("(prefers-color-scheme: dark)");

  function make(tag, text, attributes) {
    const node = document.createElement(tag);
    if (text !== undefined) node.textContent = text;
    for (const [name, value] of Object.entries(attributes || {})) node.setAttribute(name, value);
    return node;
  }

  function themed(layout) {
    const style = getComputedStyle(document.documentElement);
    const font = { ...layout.font, color: style.getPropertyValue("--ink").trim() };
    return { ...layout, font, autosize: true };
  }

  function drawChart(block) {
    const node = make("div", undefined, { class: "chart", role: "img", "aria-label": block.alt });
    node.style.minHeight = `${block.figure.layout.height || 300}px`;
    const draw = () =>
      Plotly.react(node, block.figure.data, themed(block.figure.layout), { displaylogo: false, responsive: true, displayModeBar: false });
    new IntersectionObserver((entries, watcher) => {
      if (entries.some((entry) => entry.isIntersecting)) {
        watcher.disconnect();
        draw();
        dark.addEventListener("change", draw);
      }
    }, { rootMargin: "300px" }).observe(node);
    return node;
  }

  function save(name, text, type) {
    const link = make("a", "", { href: URL.createObjectURL(new Blob([text], { type })), download: name });
    link.click();
    URL.revokeObjectURL(link.href);
  }

  // Run ids hold neither commas nor quotes and stand first in each line.
  function csvOfRun(run) {
    const all = data.blocks.find((block) => block.type === "table" && block.name === "ab");
    const [head, ...lines] = all ? all.csv.split("\n") : [];
    return head && [head, ...lines.filter((line) => line.startsWith(`${run},`)), ""].join("\n");
  }

  // Where the page of each run is: in this file, or beside it.
  const runs = new Map(data.runs.map((page) => [page.id, `#run=${encodeURIComponent(page.id)}`]));
  for (const link of data.links) runs.set(link.id, link.href);

  function runLink(id, text) {
    return runs.has(id) ? make("a", text, { href: runs.get(id) }) : make("span", text);
  }

  function drawTable(block) {
    const whole = make("div");
    const tools = make("div", undefined, { class: "tools" });
    const table = make("table");
    const head = table.createTHead().insertRow();
    for (const column of block.columns) head.append(make("th", column, { scope: "col" }));
    const body = table.createTBody();
    block.rows.forEach((cells, number) => {
      const row = body.insertRow();
      if (block.moved.length && !block.moved[number]) row.dataset.still = "";
      cells.forEach((cell, place) => {
        if (block.columns[place] === "Run" && runs.has(cell)) row.insertCell().append(runLink(cell, cell));
        else {
          const node = row.insertCell();
          node.textContent = cell;
          if (cell.length > 44) node.className = "long";
        }
      });
    });
    if (block.moved.length) {
      const label = make("label", " only what moved");
      const box = make("input", undefined, { type: "checkbox" });
      const apply = () => { for (const row of body.rows) row.hidden = box.checked && "still" in row.dataset; };
      box.checked = block.moved.some(Boolean);
      box.addEventListener("change", apply);
      label.prepend(box);
      tools.append(label);
      apply();
    }
    const csv = block.csv || (block.csv_run && csvOfRun(block.csv_run));
    if (csv) {
      const button = make("button", "Download CSV", { type: "button" });
      button.addEventListener("click", () => save(`${block.name}.csv`, csv, "text/csv"));
      tools.append(button);
    }
    const scroll = make("div", undefined, { class: "scroll", tabindex: "0", role: "region", "aria-label": `Table ${block.name}` });
    scroll.append(table);
    whole.append(tools, scroll);
    return whole;
  }

  function drawCode(block) {
    const whole = make("details");
    whole.open = !block.is_folded;
    const button = make("button", "Copy", { type: "button" });
    button.addEventListener("click", () => navigator.clipboard.writeText(block.text));
    whole.append(make("summary", block.label || "Command"), make("pre", block.text, { tabindex: "0" }), button);
    return whole;
  }

  function drawBadges(block) {
    const whole = make("p", undefined, { class: "badges" });
    for (const [text, tone] of block.items) whole.append(make("span", text, { class: `badge ${tone}` }));
    return whole;
  }

  function drawMetrics(block) {
    const whole = make("dl", undefined, { class: "metrics" });
    for (const [label, value] of block.items) whole.append(make("dt", label), make("dd", value));
    return whole;
  }

  function drawLinks(block) {
    const whole = make("ul", undefined, { class: "runs" });
    for (const [text, id] of block.runs) {
      const item = make("li");
      item.append(runLink(id, text));
      whole.append(item);
    }
    return whole;
  }

  function drawDetails(block) {
    const whole = make("details");
    whole.append(make("summary", block.label), ...block.blocks.map((one) => draw[one.type](one)));
    return whole;
  }

  function drawColumns(block) {
    const whole = make("div", undefined, { class: "sections" });
    for (const group of block.groups) {
      const section = make("section");
      section.append(...group.map((one) => draw[one.type](one)));
      whole.append(section);
    }
    return whole;
  }

  function drawDownload(block) {
    const button = make("button", block.label, { type: "button" });
    button.addEventListener("click", () => save(block.file_name, block.content, block.media_type));
    return button;
  }

  const draw = {
    text: (block) => make("p", block.text, { class: block.tone }),
    heading: (block) => make("h2", block.text),
    chart: drawChart,
    table: drawTable,
    code: drawCode,
    badges: drawBadges,
    metrics: drawMetrics,
    links: drawLinks,
    details: drawDetails,
    columns: drawColumns,
    download: drawDownload,
  };

  function listRuns() {
    const whole = make("section");
    const links = data.links.length ? data.links : data.runs.map((page) => ({ id: page.id, title: page.name, href: `#run=${encodeURIComponent(page.id)}` }));
    const search = make("input", undefined, { type: "search", placeholder: "Search runs", "aria-label": "Search runs" });
    const list = make("ul", undefined, { class: "runs" });
    for (const link of links) {
      const item = make("li");
      item.append(make("a", link.title, { href: link.href }), make("span", ` ${link.id}`, { class: "quiet" }));
      list.append(item);
    }
    search.addEventListener("input", () => {
      for (const item of list.children) item.hidden = !item.textContent.toLowerCase().includes(search.value.toLowerCase());
    });
    whole.append(make("h1", "Runs"), search, list);
    return whole;
  }

  function show() {
    const wanted = new URLSearchParams(location.hash.slice(1));
    const run = wanted.get("run");
    const name = run ? "runs" : location.hash.slice(1) || data.pages[0].id;
    const main = make("main");
    const page = run ? data.runs.find((one) => one.id === run) : data.pages.find((one) => one.id === name);
    if (page) {
      main.append(make("h1", page.title), make("p", page.question, { class: "question" }));
      main.append(...page.blocks.map((one) => draw[one.type](one)));
    } else if (name === "runs" && !run) {
      main.append(listRuns());
    } else {
      main.append(make("h1", "Not here"), make("p", run ? `This export has no run ${run}.` : "This export has no such page."));
    }
    const header = make("header");
    const nav = make("nav", undefined, { "aria-label": "Pages" });
    const entries = data.pages.length > 1 ? [...data.pages.map((one) => [one.id, one.name]), ["runs", "Runs"]] : [];
    for (const [id, title] of entries) {
      nav.append(make("a", title, { href: `#${id}`, ...(id === name ? { "aria-current": "page" } : {}) }));
    }
    if (data.home) nav.append(make("a", "All results", { href: `${data.home}index.html` }));
    header.append(make("strong", "gapless"), nav, make("span", `made ${data.made}`, { class: "quiet" }));
    root.replaceChildren(header, main);
    scrollTo(0, 0);
  }

  addEventListener("hashchange", show);
  show();
})();
