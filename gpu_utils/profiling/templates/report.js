"use strict";
(() => {
  const make = (name, attributes, text) => {
    const node = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const key in attributes) node.setAttribute(key, attributes[key]);
    if (text !== undefined) node.textContent = text;
    return node;
  };
  const three = (value) => Math.abs(value) >= 100 ? Math.round(value).toLocaleString("en") : String(Number(value.toPrecision(3)));
  const time = (ns) => {
    for (const [size, unit] of [[1e9, "s"], [1e6, "ms"], [1e3, "us"]]) if (Math.abs(ns) >= size) return three(ns / size) + " " + unit;
    return three(ns) + " ns";
  };

  // tables: a button in the head sorts, the same one again the other way round
  for (const table of document.querySelectorAll("table.sortable")) {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
      const numbers = head.classList.contains("num");
      const was = head.getAttribute("aria-sort");
      const up = was === null ? !numbers || column === 0 : was === "descending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const value = (row) => row.cells[column].dataset.v;
      const order = (a, b) => {
        const x = value(a), y = value(b);
        if (x === "" || y === "") return (x === "") - (y === ""); // unknown stays last
        return (numbers ? x - y : x.localeCompare(y)) * (up ? 1 : -1);
      };
      const body = table.tBodies[0];
      body.append(...[...body.rows].sort(order));
    }));
  }

  const holder = document.getElementById("timeline");
  if (!holder) return;
  const data = JSON.parse(document.getElementById("data").textContent);
  const span = Math.max(data.span, 1), least = Math.min(span, 20);
  const LEFT = 190, ROW = 18, AXIS = 22, PAD = 6;
  const where = document.getElementById("where"), detail = document.getElementById("detail");
  let from = 0, until = span, wide = 1000, bars = [], current = null, gapNow = -1;

  const rowsOf = data.lanes.map((lane) => {
    const rows = Array.from({ length: lane.rows }, () => []);
    for (const bar of lane.bars) rows[bar[2]].push(bar);
    return rows;
  });
  const x = (ns) => LEFT + (ns - from) / (until - from) * (wide - LEFT);
  const colour = (name) => "var(--" + name + ")";
  const wordsOf = (bar) => {
    const many = bar.count > 1;
    const what = many ? `${bar.count.toLocaleString("en")} events, the first ${data.names[bar.name]}` : data.names[bar.name];
    return `${what}: ${time(bar.ns)} from ${time(bar.start)}, ${bar.lane}` + (many ? "" : `; ${data.notes[bar.note]}`);
  };

  // bars of one row in view; those below a pixel become one with the next such ones
  function* inView(row, label, top) {
    let low = 0, high = row.length;
    while (low < high) { const middle = (low + high) >> 1; if (row[middle][0] + row[middle][1] < from) low = middle + 1; else high = middle; }
    let open = null;
    for (let at = low; at < row.length && row[at][0] <= until; at++) {
      const [start, ns, , name, hue, count, note] = row[at];
      const one = { start, ns, name, hue, count, note, lane: label, top, left: x(start), right: x(start + ns) };
      const small = one.right - one.left < 1;
      if (open && small && one.left < open.left + Math.max(1, open.right - open.left) + 0.5) {
        open.ns = Math.max(open.ns, start + ns - open.start);
        open.right = x(open.start + open.ns);
        open.count += count;
        if (open.hue !== hue) open.hue = "mixed";
        continue;
      }
      if (open) yield open;
      open = null;
      if (small) open = one; else yield one;
    }
    if (open) yield open;
  }

  const key = (bar) => `${bar.lane} ${bar.top} ${bar.start}`;

  function draw() {
    wide = Math.max(holder.clientWidth, 400);
    const focused = current && holder.contains(document.activeElement) && document.activeElement !== holder;
    const kept = current && key(current);
    bars = []; current = null;
    let top = AXIS;
    const back = make("g"), front = make("g");
    const tops = [];
    data.lanes.forEach((lane, number) => {
      const rows = rowsOf[number];
      back.append(make("path", { class: "lane", d: `M 0 ${top} H ${wide}` }));
      const label = make("text", { class: "label", x: 6, y: top + 15 }, lane.label.length > 27 ? lane.label.slice(0, 26) + "…" : lane.label);
      label.append(make("title", {}, lane.label));
      back.append(label);
      tops.push([top, lane.side]);
      rows.forEach((row, depth) => { for (const bar of inView(row, lane.label, top + PAD / 2 + depth * ROW)) bars.push(bar); });
      top += rows.length * ROW + PAD;
    });
    const gpu = tops.findIndex(([, side]) => side === "host");
    const bottom = gpu < 0 ? top : tops[gpu][0];
    if (bottom > AXIS) data.gaps.forEach((gap, number) => {
      const left = Math.max(x(gap.start), LEFT), right = Math.min(x(gap.start + gap.ns), wide);
      if (right - left < 1) return;
      const mark = make("rect", { class: number === gapNow ? "gap now" : "gap", x: left, y: AXIS + 1, width: right - left, height: bottom - AXIS - 2 });
      mark.append(make("title", {}, `idle for ${time(gap.ns)}: ${gap.words}`));
      back.append(mark);
    });
    const step = nice((until - from) / Math.max(2, (wide - LEFT) / 130));
    for (let tick = Math.ceil(from / step) * step; tick <= until; tick += step) {
      back.append(make("path", { class: "lane", d: `M ${x(tick).toFixed(1)} ${AXIS - 5} V ${top}`, "stroke-opacity": ".45" }));
      back.append(make("text", { x: Math.min(x(tick), wide - 26), y: 13, "text-anchor": tick === 0 ? "start" : "middle" }, label(tick, step)));
    }
    for (const bar of bars) {
      const left = Math.max(bar.left, LEFT), width = Math.max(1, Math.min(bar.right, wide) - left);
      if (bar.left > wide || bar.right < LEFT) continue;
      const group = make("g", { class: "bar", tabindex: -1, role: "img", "aria-label": wordsOf(bar) });
      group.append(make("rect", { x: left.toFixed(2), y: bar.top, width: width.toFixed(2), height: ROW - 2, fill: colour(bar.hue), rx: width > 6 ? 2 : 0 }));
      const text = bar.count > 1 ? `${bar.count}` : data.names[bar.name], room = Math.floor((width - 6) / 6.6);
      if (room >= 3) group.append(make("text", { x: left + 3, y: bar.top + 12.5 }, text.length > room ? text.slice(0, room - 1) + "…" : text));
      group.append(make("title", {}, wordsOf(bar)));
      group.addEventListener("focus", () => show(bar));
      group.addEventListener("pointerenter", () => { detail.textContent = wordsOf(bar); });
      bar.node = group;
      front.append(group);
      if (kept === key(bar)) current = bar;
    }
    bars = bars.filter((bar) => bar.node);
    const first = current || bars[0];
    if (first) first.node.setAttribute("tabindex", 0);
    if (current) current.node.classList.add("now");
    const svg = make("svg", { viewBox: `0 0 ${wide} ${top + 2}`, role: "presentation" });
    svg.append(back, front);
    holder.replaceChildren(svg);
    if (focused && current) current.node.focus({ preventScroll: true });
    else if (focused) holder.focus({ preventScroll: true });
    const merged = bars.filter((bar) => bar.count > 1).length;
    where.textContent = `${time(from)} to ${time(until)} of ${time(span)}` + (merged ? `; ${merged} bars stand for several events` : "");
  }

  function nice(size) {
    const power = 10 ** Math.floor(Math.log10(size));
    return Math.max(1, [1, 2, 5, 10].find((each) => each * power >= size) * power);
  }
  function label(ns, step) {
    const [size, unit] = [[1e9, "s"], [1e6, "ms"], [1e3, "us"], [1, "ns"]].find(([each]) => until >= each) || [1, "ns"];
    return (ns / size).toFixed(Math.max(0, Math.min(6, Math.ceil(Math.log10(size / step) - 1e-9)))) + " " + unit;
  }
  function show(bar) {
    if (current && current.node) { current.node.setAttribute("tabindex", -1); current.node.classList.remove("now"); }
    current = bar;
    bar.node.setAttribute("tabindex", 0);
    bar.node.classList.add("now");
    detail.textContent = wordsOf(bar);
  }
  function set(a, b) {
    const size = Math.min(span, Math.max(least, b - a));
    from = Math.min(Math.max(0, a), span - size);
    until = from + size;
    draw();
  }
  function zoom(factor, at) {
    const size = Math.min(span, Math.max(least, (until - from) * factor));
    const part = (at - from) / (until - from);
    set(at - part * size, at + (1 - part) * size);
  }
  const middle = () => current && current.start < until && current.start + current.ns > from
    ? Math.min(Math.max(current.start + current.ns / 2, from), until) : (from + until) / 2;
  const pan = (part) => set(from + part * (until - from), until + part * (until - from));
  const does = {
    in: () => zoom(0.5, middle()), out: () => zoom(2, middle()), left: () => pan(-0.25), right: () => pan(0.25), all: () => set(0, span),
  };
  for (const button of document.querySelectorAll("[data-do]")) button.addEventListener("click", () => does[button.dataset.do]());

  function go(step) {
    if (!bars.length) return;
    const order = [...bars].sort((a, b) => a.top - b.top || a.start - b.start);
    const at = order.indexOf(current);
    const next = order[Math.min(order.length - 1, Math.max(0, at < 0 ? 0 : at + step))];
    show(next);
    next.node.focus({ preventScroll: false });
  }
  function gap(number, moveFocus) {
    const one = data.gaps[number];
    gapNow = number;
    set(one.start - one.ns * 1.5, one.start + one.ns * 2.5);
    detail.textContent = `idle for ${time(one.ns)} from ${time(one.start)}: ${one.words}` + (one.host ? `; ${one.host}` : "");
    if (moveFocus) { holder.focus({ preventScroll: true }); holder.scrollIntoView({ block: "nearest" }); }
  }
  for (const button of document.querySelectorAll("[data-gap]")) button.addEventListener("click", () => gap(Number(button.dataset.gap), true));

  const keys = {
    ArrowLeft: does.left, ArrowRight: does.right, "+": does.in, "=": does.in, "-": does.out, Home: does.all,
    n: () => go(1), p: () => go(-1), g: () => data.gaps.length && gap((gapNow + 1) % data.gaps.length, true),
  };
  holder.addEventListener("keydown", (event) => {
    const act = keys[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    act();
  });
  holder.addEventListener("wheel", (event) => {
    if (event.ctrlKey) return;
    const sideways = event.shiftKey ? event.deltaY || event.deltaX : Math.abs(event.deltaX) > Math.abs(event.deltaY) ? event.deltaX : 0;
    if (!sideways && event.deltaY > 0 && until - from >= span) return; // all is shown: the page scrolls
    event.preventDefault();
    if (sideways) return pan(Math.sign(sideways) * 0.1);
    const ratio = (event.clientX - holder.getBoundingClientRect().left) / holder.clientWidth;
    const at = from + Math.max(0, ratio * wide - LEFT) / (wide - LEFT) * (until - from);
    zoom(event.deltaY > 0 ? 1.25 : 0.8, at);
  }, { passive: false });
  let held = null;
  holder.addEventListener("pointerdown", (event) => { if (event.button === 0) held = { x: event.clientX, from, until }; });
  window.addEventListener("pointermove", (event) => {
    if (!held || Math.abs(event.clientX - held.x) < 3) return;
    const moved = (event.clientX - held.x) / (wide - LEFT) * (held.until - held.from);
    set(held.from - moved, held.until - moved);
  });
  window.addEventListener("pointerup", () => { held = null; });

  const legend = document.getElementById("legend"), seen = new Map();
  for (const lane of data.lanes) for (const bar of lane.bars) {
    const words = /^k\d/.test(bar[4]) ? data.names[bar[3]] : { k: "other kernels", mixed: "several of different kinds" }[bar[4]] || bar[4];
    if (!seen.has(bar[4])) seen.set(bar[4], words);
  }
  for (const [hue, words] of [...seen].sort()) {
    const item = document.createElement("li"), square = document.createElement("i"), text = document.createElement("span");
    square.style.background = colour(hue);
    text.textContent = text.title = words;
    item.append(square, text);
    legend.append(item);
  }
  let pending = 0;
  window.addEventListener("resize", () => { cancelAnimationFrame(pending); pending = requestAnimationFrame(draw); });
  draw();
})();
