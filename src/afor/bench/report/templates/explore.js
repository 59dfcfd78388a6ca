// Charts to explore: Observable Plot draws them from the JSON in the page.
// For paper all charts are painted again in light colours; `--static` draws figures instead.
(() => {
  const data = JSON.parse(document.getElementById("chart-data").textContent);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const byName = (list) => new Map(list.map((entry) => [entry.name, entry]));
  const [metrics, datasets, backbones, methods] =
    [data.metrics, data.datasets, data.backbones, data.methods].map(byName);
  const runs = data.runs.map(([dataset, backbone, method, fold, repetition, values]) => ({
    dataset: data.datasets[dataset].name, backbone: data.backbones[backbone].name,
    method: data.methods[method].name, fold, repetition, values,
  }));
  const label = (name) => methods.get(name).label;
  const blocks = [...new Map(runs.map((run) => [`${run.dataset}\n${run.backbone}`,
    { dataset: run.dataset, backbone: run.backbone }])).values()];
  const blockLabel = (entry) =>
    `${datasets.get(entry.dataset).label}, ${backbones.get(entry.backbone).label}`;

  // Colours of paper and of a dark screen: black and dark blue would vanish on the latter.
  const LIGHT = { page: "#ffffff", text: "#1b1f24", faint: "#d8dde3", band: "#e4e4e4",
    gain: "#0072b2", loss: "#d55e00" };
  const DARK = { page: "#14171a", text: "#e6e8ea", faint: "#343b43", band: "#2f363d",
    gain: "#56a9e0", loss: "#e8833a" };
  const ON_DARK = { "#000000": "#e6e8ea", "#7f7f7f": "#a8b0b8", "#0072b2": "#56a9e0" };
  const theme = (isDark) => ({
    ...(isDark ? DARK : LIGHT),
    of: (name) => {
      const color = methods.get(name).color;
      return isDark ? ON_DARK[color] || color : color;
    },
  });

  const number = (value, digits) => value.toFixed(digits).replace("-", "−");
  const signed = (value, digits) => (value >= 0 ? "+" : "") + number(value, digits);
  const valueText = (metric, value) => `${number(metric.scale * value, metric.decimals)}${
    metric.unit === "%" ? " %" : metric.unit && ` ${metric.unit}`}`;
  const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
  const who = (dataset, fold) => `${(data.subjects[dataset] || {})[fold] || "?"} (fold ${fold})`;
  const rowName = (dataset, fold) => {  // the subject, or the number of a fold with several
    const subjects = data.subjects[dataset] || {};
    const isUnique = Object.values(subjects).filter((name) => name === subjects[fold]).length === 1;
    return isUnique && !subjects[fold].includes(",") ? subjects[fold] : `fold ${fold}`;
  };

  const element = (tag, attributes = {}, ...children) => {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name in node) node[name] = value; else node.setAttribute(name, value);
    }
    node.append(...children);
    return node;
  };
  const choice = (title, entries, state, key, changed) => {
    const select = element("select", {}, ...entries.map(([value, text]) =>
      element("option", { value }, text)));
    select.value = state[key];
    select.addEventListener("change", () => { state[key] = select.value; changed(); });
    const box = element("label", { className: "choice" }, `${title} `, select);
    box.hidden = entries.length < 2;
    return box;
  };
  const methodBoxes = (names, state, changed) => {
    const boxes = names.map((name) => {
      const input = element("input", { type: "checkbox", checked: !state.hidden.has(name) });
      input.addEventListener("change", () => {
        if (input.checked) state.hidden.delete(name); else state.hidden.add(name);
        changed();
      });
      const swatch = element("span", { className: "swatch" });  // which line is whose
      swatch.style.background = theme(dark.matches).of(name);
      return element("label", {}, input, swatch, label(name));
    });
    return element("fieldset", { className: "methods" }, element("legend", {}, "Show"), ...boxes);
  };

  // ---- tips: by pointer, or by Tab and the arrow keys ----
  const tip = element("div", { className: "tip", hidden: true });
  document.body.append(tip);
  const showTip = (text, left, top) => {
    tip.textContent = text;
    tip.hidden = false;
    tip.style.left = `${Math.max(4, Math.min(left + 12, innerWidth - tip.offsetWidth - 8))}px`;
    tip.style.top = `${top + tip.offsetHeight + 20 > innerHeight ? top - tip.offsetHeight - 10 : top + 14}px`;
  };
  const hideTip = () => { tip.hidden = true; };
  addEventListener("keydown", (event) => { if (event.key === "Escape") hideTip(); });
  const addTips = (frame, svg) => {
    const marks = [...svg.querySelectorAll("[aria-label]:not(g)")];
    marks.forEach((mark, position) => {
      const text = mark.getAttribute("aria-label");
      mark.setAttribute("role", "img");
      mark.setAttribute("tabindex", "-1");
      mark.addEventListener("pointermove", (event) => showTip(text, event.clientX, event.clientY));
      mark.addEventListener("pointerleave", hideTip);
      mark.addEventListener("blur", hideTip);
      mark.addEventListener("focus", () => {
        const box = mark.getBoundingClientRect();
        showTip(text, box.right, box.bottom);
        frame.dataset.active = position;
      });
    });
    frame.onkeydown = (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (!marks.length || (!step && event.key !== "Home" && event.key !== "End")) return;
      event.preventDefault();
      const inside = marks.includes(document.activeElement);
      const now = inside ? Number(frame.dataset.active) : step < 0 ? 0 : -1;
      const next = event.key === "Home" ? 0 : event.key === "End" ? marks.length - 1
        : (now + step + marks.length) % marks.length;
      marks[next].focus();
    };
  };

  // ---- a chart: controls, an answer in words, the drawing, downloads ----
  const save = (blob, name) => {
    const link = element("a", { href: URL.createObjectURL(blob), download: name });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  };
  const chart = (host, name, build, controls) => {
    const frame = element("div", { className: "frame", tabIndex: 0, role: "group" });
    const answer = element("p", { className: "dim", "aria-live": "polite" });
    const paint = (isPaper = false) => {
      if (!host.clientWidth && isPaper !== true) return;
      const drawing = isPaper === true ? build(760, theme(false))
        : build(Math.min(host.clientWidth, 900), theme(dark.matches));
      frame.setAttribute("aria-label", `${drawing.title}. Arrow keys read one mark after another.`);
      answer.textContent = drawing.answer;
      drawing.svg.setAttribute("aria-label", drawing.title);
      frame.replaceChildren(drawing.svg);
      addTips(frame, drawing.svg);
      hideTip();
    };
    const paper = () => {
      const { svg, title } = build(760, theme(false));
      svg.setAttribute("style", "color: #1b1f24; background: #ffffff");
      svg.setAttribute("xmlns", "http://www.w3.org/2000/svg");
      svg.setAttribute("role", "img");
      svg.setAttribute("aria-label", title);
      return { svg, text: new XMLSerializer().serializeToString(svg) };
    };
    const asSvg = element("button", { type: "button" }, "SVG");
    asSvg.addEventListener("click", () =>
      save(new Blob([paper().text], { type: "image/svg+xml" }), `${name}.svg`));
    const asPng = element("button", { type: "button" }, "PNG");
    asPng.addEventListener("click", () => {
      const { svg, text } = paper();
      const image = new Image();
      image.onload = () => {
        const canvas = element("canvas",
          { width: 3 * svg.getAttribute("width"), height: 3 * svg.getAttribute("height") });
        const pen = canvas.getContext("2d");
        pen.fillStyle = "#ffffff";
        pen.fillRect(0, 0, canvas.width, canvas.height);
        pen.drawImage(image, 0, 0, canvas.width, canvas.height);
        canvas.toBlob((blob) => save(blob, `${name}.png`));
      };
      image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
    });
    host.append(
      element("div", { className: "controls" }, ...controls(() => paint())), answer, frame,
      element("p", { className: "dim downloads" }, "Download this chart: ", asSvg, " ", asPng),
    );
    host.hidden = false;
    paint();
    dark.addEventListener("change", () => paint());
    addEventListener("beforeprint", () => paint(true));
    addEventListener("afterprint", () => paint());
    let width = host.clientWidth;
    addEventListener("resize", () => {
      if (host.clientWidth !== width) { width = host.clientWidth; paint(); }
    });
    return paint;
  };
  const plot = (options, colors) => {
    const svg = Plot.plot({ marginBottom: 46, ...options, style: { color: colors.text, fontSize: "12px",
      background: "transparent" } });
    svg.setAttribute("role", "graphics-document");
    for (const group of svg.querySelectorAll("g[aria-label]")) {
      group.removeAttribute("aria-label");  // of no use to readers: "dot", "rule", ...
    }
    for (const group of svg.querySelectorAll("[aria-hidden]")) group.removeAttribute("aria-hidden");
    return svg;
  };
  const metricEntries = data.metrics.map((entry) => [entry.name, entry.label]);
  const ALL = "*";
  const withAll = (entries, text) =>
    entries.length > 1 ? [[ALL, text], ...entries] : entries;
  const named = (list) => list.map((entry) => [entry.name, entry.label]);
  const valueOf = (state) => {
    const position = data.metrics.findIndex((entry) => entry.name === state.metric);
    return (run) => run.values[position];
  };
  const blockOf = (state) => {
    const [dataset, backbone] = state.block.split("\n");
    return { dataset, backbone };
  };
  const blockEntries = blocks.map((b) => [`${b.dataset}\n${b.backbone}`, blockLabel(b)]);

  // ---- gains over the baseline ----
  const gainChart = (state) => (width, colors) => {
    const metric = metrics.get(state.metric);
    const shown = data.comparisons.filter((c) => c.metric === state.metric && c.gain !== null
      && (state.dataset === ALL || c.dataset === state.dataset)
      && (state.backbone === ALL || c.backbone === state.backbone)
      && !state.hidden.has(c.method));
    const panels = [...new Set(shown.map(blockLabel))];
    const rows = [...new Set(shown.map((c) => label(c.method)))];
    const points = shown.map((c) => ({
      panel: blockLabel(c), method: label(c.method), color: colors.of(c.method),
      symbol: methods.get(c.method).symbol, complete: c.complete,
      gain: metric.gainScale * c.gain,
      low: c.low === null ? null : metric.gainScale * c.low,
      high: c.high === null ? null : metric.gainScale * c.high,
      text: [`${c.word}.`, ...c.lines].join(" "),
    }));
    const bands = panels.map((panel) => {
      const margin = shown.find((c) => blockLabel(c) === panel).margin;
      return { panel, x: margin === null ? null : metric.gainScale * margin };
    }).filter((band) => band.x !== null);
    const title = `${metric.label} gain over ${label(data.baseline)} (${metric.gainUnit})`;
    const count = (word) => shown.filter((c) => c.word.startsWith(word)).length;
    const words = [["better", "better"], ["worse", "worse"], ["equal", "equal"],
      ["undecided", "undecided"], ["no verdict (not better than guessing)", "no verdict"],
      ["incomplete", "incomplete"]]
      .map(([text, word]) => [count(word), text]).filter(([times]) => times)
      .map(([times, text]) => `${times} ${text}`);
    return {
      title,
      answer: `Verdicts against ${label(data.baseline)}: ${words.join(", ") || "none"}. Bars: exact `
        + "95 % interval over folds, not corrected for the number of methods. Band: the margin "
        + "of equivalence. Hollow: runs are missing.",
      svg: plot({
        width, marginLeft: 130, marginRight: 16, marginTop: 28,
        height: 76 + panels.length * (34 + 24 * rows.length),
        x: { label: title, grid: true, labelAnchor: "center", labelArrow: "none", nice: true },
        y: { domain: rows, label: null, tickSize: 0 },
        fy: { domain: panels, label: null, padding: 0.12, axis: null },
        marks: [
          Plot.rectX(bands, { fy: "panel", x1: (b) => -b.x, x2: "x", fill: colors.band }),
          Plot.gridX({ stroke: colors.faint, strokeOpacity: 1 }),
          Plot.ruleX([0], { stroke: colors.text }),
          Plot.text(panels, { fy: (p) => p, text: (p) => p, frameAnchor: "top-left", dy: -17,
            fontWeight: "bold", fontSize: 12 }),
          Plot.link(points.filter((p) => p.low !== null && p.high !== null), { fy: "panel", x1: "low",
            x2: "high", y1: "method", y2: "method", stroke: "color", strokeWidth: 2 }),
          Plot.dot(points, { fy: "panel", x: "gain", y: "method", r: 5, symbol: "symbol",
            stroke: "color", strokeWidth: 1.5,
            fill: (p) => (p.complete ? p.color : colors.page), ariaLabel: "text" }),
        ],
        symbol: { type: "identity" }, color: { type: "identity" },
      }, colors),
    };
  };

  // ---- every run of every method ----
  const runChart = (state) => (width, colors) => {
    const metric = metrics.get(state.metric);
    const { dataset, backbone } = blockOf(state);
    const value = valueOf(state);
    const shown = runs.filter((run) => run.dataset === dataset && run.backbone === backbone
      && value(run) !== null && !state.hidden.has(run.method));
    const rows = [...new Set(shown.map((run) => label(run.method)))];
    const points = shown.map((run) => ({
      x: metric.scale * value(run), method: label(run.method), color: colors.of(run.method),
      text: `${label(run.method)}, ${who(dataset, run.fold)}, repetition ${run.repetition}: ${
        metric.label} ${valueText(metric, value(run))}`,
    }));
    const title = `${metric.label}${metric.unit && ` (${metric.unit})`} of every run, ${
      blockLabel({ dataset, backbone })}`;
    return {
      title,
      answer: `${points.length} runs, a dot for each fold and repetition. The spread says how different `
        + "subjects are, not how certain a mean is.",
      svg: plot({
        width, marginLeft: 130, marginRight: 16, height: 76 + 32 * rows.length,
        x: { label: title, grid: true, labelAnchor: "center", labelArrow: "none", nice: true },
        y: { domain: rows, label: null, tickSize: 0 },
        marks: [
          Plot.gridX({ stroke: colors.faint, strokeOpacity: 1 }),
          Plot.dot(points, { x: "x", y: "method", r: 3.5, fill: "color", fillOpacity: 0.55,
            stroke: "color", strokeWidth: 0.8, ariaLabel: "text" }),
        ],
        color: { type: "identity" },
      }, colors),
    };
  };

  // ---- paired folds of two methods ----
  const pairChart = (state) => (width, colors) => {
    const metric = metrics.get(state.metric);
    const { dataset, backbone } = blockOf(state);
    const value = valueOf(state);
    const of = (name) => new Map(runs.filter((run) => run.dataset === dataset
      && run.backbone === backbone && run.method === name && value(run) !== null)
      .map((run) => [`${run.fold}/${run.repetition}`, run]));
    const [first, second] = [of(state.first), of(state.second)];
    const folds = new Map();
    for (const [key, run] of first) {
      if (!second.has(key)) continue;
      if (!folds.has(run.fold)) folds.set(run.fold, []);
      folds.get(run.fold).push([run.repetition, value(run), value(second.get(key))]);
    }
    const rows = [...folds].map(([fold, repetitions]) => ({
      fold, repetitions, ours: mean(repetitions.map((d) => d[1])), theirs: mean(repetitions.map((d) => d[2])),
      name: rowName(dataset, fold),
    }));
    const difference = (entry) => {
      const gain = metric.sign * (entry.ours - entry.theirs);
      return Math.abs(gain) < data.tie ? 0 : gain;  // equal but for rounding
    };
    rows.sort((a, b) => (state.order === "fold" ? a.fold - b.fold : difference(b) - difference(a)));
    const [one, two] = [label(state.first), label(state.second)];
    const text = (entry) => `${who(dataset, entry.fold)}: ${one} ${valueText(metric, entry.ours)}, ${
      two} ${valueText(metric, entry.theirs)}, difference ${
      signed(metric.gainScale * (entry.ours - entry.theirs), 2)} ${metric.gainUnit}`;
    const better = rows.filter((entry) => difference(entry) > 0).length;
    const worse = rows.filter((entry) => difference(entry) < 0).length;
    const tested = data.comparisons.find((c) => c.metric === state.metric && c.dataset === dataset
      && c.backbone === backbone && [state.first, state.second].includes(c.method)
      && [state.first, state.second].includes(data.baseline));
    const counted = `${one} is better in ${better} of ${rows.length} folds, ${two} in ${worse}.`;
    let answer = `${tested ? tested.lines.join("\n") : `No verdict: the report tests every method against ${
      label(data.baseline)}, not this pair; \`afor report … --baseline ${state.second}\` does.`} ${counted}`;
    if (state.first === state.second) answer = "Choose two different methods.";
    else if (!rows.length) answer = `${one} and ${two} have no run in common here.`;
    const [mine, other] = [colors.of(state.first), colors.of(state.second)];
    const repetitions = rows.flatMap((entry) => entry.repetitions.flatMap(([repetition, a, b]) => [
      { y: entry.name, x: a, color: mine, text: `${one}, ${who(dataset, entry.fold)}, repetition ${repetition}: ${
        valueText(metric, a)}` },
      { y: entry.name, x: b, color: other, text: `${two}, ${who(dataset, entry.fold)}, repetition ${repetition}: ${
        valueText(metric, b)}` },
    ]));
    const title = `${metric.label}${metric.unit && ` (${metric.unit})`}: ${one} (filled) and ${
      two} (open), ${blockLabel({ dataset, backbone })}`;
    return {
      title, answer,
      svg: plot({
        width, marginLeft: 130, marginRight: 16, height: 76 + 20 * rows.length,
        x: { label: title, grid: true, labelAnchor: "center", labelArrow: "none", nice: true,
          transform: (x) => metric.scale * x },
        y: { domain: rows.map((entry) => entry.name), label: null, tickSize: 0 },
        marks: [
          Plot.gridX({ stroke: colors.faint, strokeOpacity: 1 }),
          Plot.link(rows, { x1: "theirs", x2: "ours", y1: "name", y2: "name", strokeWidth: 2,
            stroke: (entry) => (difference(entry) >= 0 ? colors.gain : colors.loss) }),
          Plot.dot(state.repetitions ? repetitions : [], { x: "x", y: "y", r: 2, fill: "color",
            fillOpacity: 0.8, ariaLabel: "text" }),
          Plot.dot(rows, { x: "theirs", y: "name", r: 4.5, fill: colors.page, stroke: other,
            strokeWidth: 1.6, ariaLabel: text }),
          Plot.dot(rows, { x: "ours", y: "name", r: 5, fill: mine, ariaLabel: text }),
        ],
        color: { type: "identity" },
      }, colors),
    };
  };

  // ---- loss while training ----
  const curveChart = (state) => (width, colors) => {
    const { dataset, backbone } = blockOf(state);
    const shown = data.curves.filter((c) => c.dataset === dataset && c.backbone === backbone
      && !state.hidden.has(c.method));
    const points = shown.flatMap((c) => c.mean.map((y, i) => ({
      epoch: i + 1, y, low: c.low[i], high: c.high[i], color: colors.of(c.method),
      method: label(c.method), band: c.runs > 2,
      text: `${label(c.method)}, epoch ${i + 1}: loss ${number(y, 4)}, middle half ${
        number(c.low[i], 4)} to ${number(c.high[i], 4)}, ${c.runs} runs`,
    })).filter((p) => p.y !== null && p.low !== null));
    const checked = shown.flatMap((c) => c.validation.map((y, i) => ({
      epoch: i + 1, y, color: colors.of(c.method), method: label(c.method),
      text: `${label(c.method)}, epoch ${i + 1}: validation loss ${number(y ?? 0, 4)}`,
    })).filter((p) => p.y !== null));
    const levels = [...new Set(shown.map((c) => c.guess).filter((level) => level !== null))];
    const values = [...points, ...checked].map((p) => p.y);
    const log = values.length > 0 && Math.min(...values) > 0
      && Math.max(...values) > 4 * Math.min(...values);
    const title = `Training and validation loss, ${blockLabel({ dataset, backbone })}`;
    return {
      title,
      answer: "Line: training loss, mean of the runs. Band: the middle half of the runs. Dashed: "
        + "validation loss. Grey: guessing by the class frequencies. A run that ended early counts "
        + "up to its end.",
      svg: plot({
        width, height: 340, marginLeft: 56, marginRight: 90,
        x: { label: "epoch", labelAnchor: "center", labelArrow: "none", tickFormat: "d",
          ticks: Math.max(1, Math.min(8, ...shown.map((c) => c.mean.length - 1))) },
        y: { label: "loss", labelArrow: "none", grid: true, type: log ? "log" : "linear" },
        marks: [
          Plot.gridY({ stroke: colors.faint, strokeOpacity: 1 }),
          Plot.areaY(points.filter((p) => p.band), { x: "epoch", y1: "low", y2: "high", z: "method",
            fill: "color", fillOpacity: 0.12 }),
          Plot.ruleY(levels.slice(0, 1), { stroke: colors.text, strokeOpacity: 0.5 }),
          Plot.line(points, { x: "epoch", y: "y", z: "method", stroke: "color", strokeWidth: 1.8 }),
          Plot.line(checked, { x: "epoch", y: "y", z: "method", stroke: "color", strokeWidth: 1.2,
            strokeDasharray: "4 3" }),
          Plot.dot(checked, { x: "epoch", y: "y", r: 1.5, fill: "color", ariaLabel: "text" }),
          Plot.dot(points, { x: "epoch", y: "y", r: 2.5, fill: "color", ariaLabel: "text" }),
        ],
        color: { type: "identity" },
      }, colors),
    };
  };

  // ---- on the page ----
  const host = (name) => document.getElementById(`chart-${name}`);
  const present = data.methods.map((entry) => entry.name);
  const start = () => ({ metric: data.metrics[0].name, block: blockEntries[0][0],
    dataset: data.datasets.length > 1 ? ALL : data.datasets[0].name,
    backbone: data.backbones.length > 1 ? ALL : data.backbones[0].name, hidden: new Set() });

  const gains = start();
  const compared = present.filter((name) => data.comparisons.some((c) => c.method === name));
  chart(host("gains"), "gains", gainChart(gains), (changed) => [
    choice("Metric", metricEntries, gains, "metric", changed),
    choice("Data set", withAll(named(data.datasets), "all"), gains, "dataset", changed),
    choice("Network", withAll(named(data.backbones), "all"), gains, "backbone", changed),
    methodBoxes(compared, gains, changed),
  ]);

  const pair = { ...start(), order: "difference", repetitions: true, second: data.baseline };
  const rivals = compared.length ? compared : present;
  pair.first = rivals.includes("afor") ? "afor" : rivals[0];
  chart(host("pairs"), "paired-folds", pairChart(pair), (changed) => {
    const repetitions = element("input", { type: "checkbox", checked: true });
    repetitions.addEventListener("change", () => { pair.repetitions = repetitions.checked; changed(); });
    return [
      choice("Method", named(data.methods), pair, "first", changed),
      choice("against", named(data.methods), pair, "second", changed),
      choice("Metric", metricEntries, pair, "metric", changed),
      choice("Data set and network", blockEntries, pair, "block", changed),
      choice("Order", [["difference", "by difference"], ["fold", "by fold"]], pair, "order", changed),
      element("label", { className: "choice" }, repetitions, " repetitions"),
    ];
  });

  const every = start();
  chart(host("runs"), "runs", runChart(every), (changed) => [
    choice("Metric", metricEntries, every, "metric", changed),
    choice("Data set and network", blockEntries, every, "block", changed),
    methodBoxes(present, every, changed),
  ]);

  if (data.curves.length && host("curves")) {
    const curves = start();
    const traced = present.filter((name) => data.curves.some((c) => c.method === name));
    const networks = blockEntries.filter(([value]) =>
      data.curves.some((c) => `${c.dataset}\n${c.backbone}` === value));
    curves.block = networks[0][0];
    chart(host("curves"), "training-loss", curveChart(curves), (changed) => [
      choice("Data set and network", networks, curves, "block", changed),
      methodBoxes(traced, curves, changed),
    ]);
  }
  document.documentElement.classList.add("charts");
})();
