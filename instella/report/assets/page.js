/* Draws the charts, sorts tables, opens manifests. The page can be read without it. */
(function () {
  "use strict";
  const data = JSON.parse(document.getElementById("data").textContent);
  const volatile = document.getElementById("volatile");

  // Panels of this execution stand behind those of the run.
  if (volatile) {
    const own = JSON.parse(volatile.textContent).noted.charts, before = data.curves.length;
    data.curves.push(...own.curves);
    for (const panel of own.panels) {
      data.panels.push({ ...panel, curves: panel.curves.map((number) => number + before) });
    }
  }

  // Times are facts of one execution, so they come from its block.
  function fillTimes() {
    if (!volatile) return;
    const facts = JSON.parse(volatile.textContent);
    const cells = new Map(), nodes = new Map();
    document.querySelectorAll("[data-time]").forEach((cell) => cells.set(cell.dataset.time, cell));
    document.querySelectorAll(".node").forEach((node) => nodes.set(node.dataset.stage, node));
    for (const row of facts.stages) {
      const text = row.seconds.toFixed(1) + " s";
      if (cells.has(row.stage)) {
        cells.get(row.stage).textContent = text;
        cells.get(row.stage).dataset.value = row.seconds;
      }
      if (nodes.has(row.stage)) nodes.get(row.stage).querySelector(".time").textContent = " · " + text;
    }
    document.querySelectorAll("[data-facts]").forEach((list) => {
      const own = facts.statements.filter((row) => row.stage === list.dataset.facts);
      if (!own.length) return;
      const term = document.createElement("dt"), said = document.createElement("dd");
      term.textContent = "statements";
      said.textContent = own.map((row) => row.file).join(", ");
      list.append(term, said);
    });
    for (const name of facts.running) if (nodes.has(name)) nodes.get(name).classList.add("running");
  }

  function openTarget() {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target || target.tagName !== "DETAILS") return;
    for (let item = target; item; item = item.parentElement.closest("details")) item.open = true;
    target.querySelector("summary").focus();
    target.scrollIntoView();
  }

  function showEdges(node, near) {
    document.querySelectorAll(".edges path").forEach((path) => {
      const touches = path.dataset.from === node.dataset.stage || path.dataset.to === node.dataset.stage;
      if (touches) path.classList.toggle("near", near);
    });
  }

  function watchNodes() {
    document.querySelectorAll(".node").forEach((node) => {
      for (const name of ["mouseenter", "focus"]) node.addEventListener(name, () => showEdges(node, true));
      for (const name of ["mouseleave", "blur"]) node.addEventListener(name, () => showEdges(node, false));
    });
    // A second click on the same link changes no hash.
    document.querySelectorAll('a[href^="#stage-"]').forEach((link) =>
      link.addEventListener("click", () => setTimeout(openTarget)));
    window.addEventListener("hashchange", openTarget);
    openTarget();
  }

  const order = new Intl.Collator("en", { numeric: true });
  function valueOf(row, column) {
    const cell = row.cells[column];
    return cell.dataset.value !== undefined ? cell.dataset.value : cell.textContent.trim();
  }
  function sortBy(button) {
    const head = button.closest("th"), table = head.closest("table"), body = table.tBodies[0];
    const column = head.cellIndex, number = head.classList.contains("n");
    const up = head.getAttribute("aria-sort") !== "ascending";
    const rows = Array.from(body.rows);
    const compare = (one, other) => {
      const a = valueOf(one, column), b = valueOf(other, column);
      if (!number) return order.compare(a, b);
      const x = parseFloat(a.replace(/,/g, "")), y = parseFloat(b.replace(/,/g, ""));
      return (isNaN(x) ? -Infinity : x) - (isNaN(y) ? -Infinity : y);
    };
    rows.sort((one, other) => (up ? compare(one, other) : compare(other, one)));
    table.querySelectorAll("th[aria-sort]").forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    body.append(...rows);
  }

  let plots = [];
  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  /* One column of x for all curves of a panel, and a column of y for each; null where it has none. */
  function columns(panel) {
    const chosen = panel.curves.map((number) => data.curves[number]);
    const all = new Set();
    for (const curve of chosen) for (const step of curve.steps) all.add(curve.start + step);
    const x = Array.from(all).sort((one, other) => one - other);
    const place = new Map(x.map((value, index) => [value, index]));
    const ys = chosen.map((curve) => {
      const y = new Array(x.length).fill(null);
      curve.steps.forEach((step, index) => { y[place.get(curve.start + step)] = curve.figures[panel.figure][index]; });
      return y;
    });
    return { chosen, table: [x, ...ys] };
  }

  function nameOf(curve) {
    return (curve.side ? curve.side + ": " : "") + curve.stage + (curve.seeds ? " (mean)" : "");
  }

  function stageAt(x) {
    return data.line.find((part) => x > part.from && x <= part.to);
  }

  function bands(plot) {
    const { ctx, bbox } = plot, ratio = window.devicePixelRatio || 1;
    ctx.save();
    ctx.strokeStyle = color("--line");
    ctx.lineWidth = ratio;
    for (const part of data.line.slice(1)) {
      const x = Math.round(plot.valToPos(part.from + 0.5, "x", true));
      if (x <= bbox.left || x >= bbox.left + bbox.width) continue;
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
    }
    ctx.restore();
  }

  function short(value) {
    if (value == null) return "-";
    return value !== 0 && Math.abs(value) < 1e-3 ? value.toExponential(1) : String(+value.toPrecision(4));
  }

  // steps are whole numbers
  const whole = [1, 10, 1e2, 1e3, 1e4, 1e5, 1e6].flatMap((power) => [power, 2 * power, 5 * power]);

  function draw(box) {
    const panel = data.panels[+box.dataset.panel];
    const { chosen, table } = columns(panel);
    const readout = box.parentElement.querySelector(".readout");
    const hasSeeds = chosen.some((curve) => curve.seeds);
    const ink = color("--soft"), line = color("--line");
    const axis = { stroke: ink, grid: { stroke: line, width: 0.5 }, ticks: { stroke: line }, font: "12px system-ui, sans-serif" };
    const options = {
      width: Math.max(240, box.clientWidth), height: 230, legend: { show: false },
      cursor: { drag: { x: false, y: false }, sync: { key: "line" }, points: { show: false } },
      scales: { x: { time: false, range: xRange }, y: { range: yRange } },
      axes: [{ ...axis, space: 60, incrs: whole }, { ...axis, size: 64, values: (_, ticks) => ticks.map(short) }],
      series: [{}, ...chosen.map((curve) => {
        const single = hasSeeds && /_seed[0-9]+$/.test(curve.stage);
        return {
          stroke: color("--k" + (curve.color % 9)), width: single ? 0.7 : 1.8, spanGaps: true,
          dash: curve.side === "B" ? [6, 4] : undefined,
          points: { show: curve.steps.length < 2 },
        };
      })],
      hooks: {
        drawAxes: [bands],
        setCursor: [(plot) => {
          const index = plot.cursor.idx;
          if (index == null) { readout.textContent = "\u00a0"; return; }
          const x = table[0][index], part = stageAt(x);
          const shown = chosen.map((curve, number) => [curve, table[number + 1][index]]).filter((pair) => pair[1] != null);
          readout.textContent = (part ? part.stage + ", step " + (x - part.from) : "step " + x) + ": " +
            shown.map(([curve, value]) => nameOf(curve) + " " + short(value)).join(", ");
        }],
      },
    };
    plots.push([box, new uPlot(options, table, box)]);
  }

  /* Room around the values; around a value that never changes a unit of its size. */
  function yRange(plot, low, high) {
    if (low == null) return [0, 1];
    if (low === high) return [Math.min(0, 2 * low), Math.max(0, 2 * low) || 1];
    return uPlot.rangeNum(low, high, 0.1, false);
  }

  let zoom = null;
  function xRange(plot, low, high) {
    if (zoom) return [zoom.from + 0.5, Math.max(zoom.to, zoom.from + 1.5)];
    return [low, high > low ? high : low + 1];
  }

  function drawAll() {
    for (const [, plot] of plots) plot.destroy();
    plots = [];
    document.querySelectorAll(".chart").forEach(draw);
    document.documentElement.dataset.charts = plots.length;
  }

  function fit() {
    for (const [box, plot] of plots) {
      const width = Math.max(240, box.clientWidth);
      if (width !== plot.width) plot.setSize({ width, height: 230 });
    }
  }

  fillTimes();
  watchNodes();
  document.querySelectorAll(".sort").forEach((button) => button.addEventListener("click", () => sortBy(button)));
  drawAll();
  window.addEventListener("resize", fit);
  for (const query of ["(prefers-color-scheme: dark)", "print"]) {
    window.matchMedia(query).addEventListener("change", drawAll);
  }
  const select = document.getElementById("zoom");
  if (select) {
    select.addEventListener("change", () => {
      zoom = select.value === "" ? null : data.line[+select.value];
      for (const [, plot] of plots) plot.setData(plot.data);
    });
  }
})();
