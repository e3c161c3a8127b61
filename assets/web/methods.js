// The Methods table. Cells are filled in as rows are measured; the boxes that choose methods and prompts stay what they are.
(function () {
  "use strict";
  const sv = window.specviz;
  const { h } = sv;
  const DEPTHS = 5; // shown; the export has them all
  const PARTS = ["draft", "target", "verify", "commit"];
  const GROUPS = [["what", ["trained", "adds", "lossless"]], ["does", ["tau", "alpha", "rows", "c", "v"]], ["gain", ["predicted", "measured", "same", "time"]]];
  const COLUMNS = GROUPS.flatMap((group) => group[1]);
  const t = (key, facts) => sv.t("methods." + key, facts);
  const name = (method) => (sv.has("page.method." + method) ? sv.t("page.method." + method) : method);
  const words = (key, otherwise) => (sv.has(key) ? sv.t(key) : otherwise);
  const times = (x) => (sv.finite(x) ? x.toFixed(2) + "×" : "–");
  const views = new Set();
  const chosen = {}; // the target and the rule above, once they were changed; perhaps before this tab was ever opened
  sv.stats.methods = { state: "", rows: 0, measured: 0, updates: 0 };

  // 11.8 M, 中文 1180 万
  function many(n) {
    if (!sv.finite(n)) return "–";
    const units = sv.lang === "zh" ? [[1e8, " 亿"], [1e4, " 万"]] : [[1e9, " B"], [1e6, " M"], [1e3, " k"]];
    const [size, unit] = units.find(([least]) => n >= least) || [1, ""];
    const shown = n / size;
    return (size === 1 || shown >= 99.5 ? shown.toFixed(0) : shown.toPrecision(shown < 10 ? 2 : 3)) + unit;
  }
  const bytes = (n) => (sv.finite(n) ? (n < 1e6 ? (n / 1e3).toFixed(0) + " kB" : (n / 1e6).toFixed(n < 1e7 ? 1 : 0) + " MB") : "–");

  function mount(element, props, watch, tell) {
    const root = element.querySelector(".sv-methods");
    if (root.dataset.ready) return;
    root.dataset.ready = "1";
    new View(root, props, watch, tell);
  }

  class View {
    constructor(root, props, watch, tell) {
      Object.assign(this, { root, props, tell, sorted: false, waiting: false, stopping: false, place: null });
      this.usual = props.known.usual;
      this.methods = new Set(this.usual.methods);
      this.prompts = new Set(this.usual.prompts);
      this.tokens = this.usual.max_new;
      this.build();
      views.add(this);
      watch("value", () => {
        this.waiting = false;
        // The server answers within seconds even where a step takes longer; then it is asked again, until it is over.
        if (!this.stopping || this.value.state !== "busy") this.stopping = false;
        else if (this.value.say.key === "methods.st.stopping") setTimeout(() => { if (this.stopping) this.tell.again(); }, 300);
        this.draw();
      });
      window.addEventListener("specviz:lang", () => setTimeout(() => { this.build(); }, 0));
      this.follow();
    }
    get target() { return chosen.target ?? sv.page.spec.defaults.target; }
    get exact() { return this.props.known.exact.includes(chosen.rule ?? sv.page.spec.defaults.rule); }
    get value() { return this.props.value || {}; }
    get busy() { return this.waiting || this.value.state === "busy"; }

    // ---- what stays while rows are measured --------------------------------------------------------------------------
    build() {
      const known = (n) => words("page.ex." + n, n);
      const box = (group, key, label, changed) => h("label", { class: "sv-m-choice" }, h("input", {
        type: "checkbox", value: key, checked: group.has(key),
        on: { change: (event) => { if (event.target.checked) group.add(key); else group.delete(key); if (changed) changed(); } },
      }), h("span", null, label));
      this.go = h("button", { type: "button", class: "sv-m-go", on: { click: () => this.start() } }, t("measure"));
      this.stop = h("button", { type: "button", class: "sv-button sv-m-stop", on: { click: () => this.end() } }, t("stop"));
      this.say = h("p", { class: "sv-m-say", role: "status" });
      this.bar = h("progress", { max: 1, value: 0, "aria-label": t("progress") });
      const amount = h("select", { class: "sv-select", on: { change: (event) => { this.tokens = Number(event.target.value); } } },
        [16, 32, 64, 128].map((n) => h("option", { value: n, selected: n === this.tokens }, n)));
      const sort = h("label", { class: "sv-m-choice" }, h("input", { type: "checkbox", checked: this.sorted, on: { change: (event) => { this.sorted = event.target.checked; this.draw(); } } }), h("span", null, t("sort")));
      this.save = ["json", "csv"].map((kind) => h("button", { type: "button", class: "sv-button", on: { click: () => this.download(kind) } }, t("save." + kind)));
      this.advice = h("section", { class: "sv-m-advice" });
      this.about = h("p", { class: "sv-m-about" });
      this.best = h("p", { class: "sv-m-best" });
      this.body = h("tbody", { role: "rowgroup" });
      this.lines = new Map();
      for (const method of ["plain", ...this.usual.methods]) this.lines.set(method, this.line(method));
      this.table = h("table", { class: "sv-m-table", role: "table" },
        h("caption", { class: "sv-hidden" }, t("caption")),
        h("thead", { role: "rowgroup" },
          h("tr", { role: "row" }, h("th", { scope: "col", role: "columnheader", rowspan: 2 }, t("col.method")),
            GROUPS.map(([group, columns]) => h("th", { scope: "colgroup", role: "columnheader", colspan: columns.length, class: "sv-m-first" }, t("group." + group)))),
          h("tr", { role: "row" }, GROUPS.flatMap(([, columns]) => columns.map((column, i) => h("th", { scope: "col", role: "columnheader", title: t("help." + column), class: (i ? "" : "sv-m-first ") + "sv-m-" + column }, t("col." + column)))))),
        this.body);
      sv.put(this.root,
        h("p", { class: "sv-m-intro" }, t("intro")),
        h("div", { class: "sv-m-controls" },
          h("fieldset", null, h("legend", null, t("prompts")), box(this.prompts, "own", t("own")), this.usual.examples.map((n) => box(this.prompts, n, known(n)))),
          h("label", { class: "sv-m-choice" }, h("span", null, t("tokens")), amount), sort),
        h("div", { class: "sv-m-run" }, this.go, this.stop, this.say, this.bar),
        this.best, h("div", { class: "sv-m-scroll" }, this.table), this.about, this.advice,
        h("div", { class: "sv-m-foot" }, h("details", null, h("summary", null, t("words")), h("dl", null, COLUMNS.flatMap((column) => [h("dt", null, t("col." + column)), h("dd", null, t("help." + column))]))), h("div", { class: "sv-m-save" }, this.save)));
      this.draw();
    }
    line(method) {
      const cells = {};
      const tick = method === "plain" ? null : h("input", { type: "checkbox", checked: this.methods.has(method), "aria-label": t("include", { name: name(method) }),
        on: { change: (event) => { if (event.target.checked) this.methods.add(method); else this.methods.delete(method); } } });
      const note = h("small", null);
      const head = h("th", { scope: "row", role: "rowheader" }, h("label", { class: "sv-m-name" }, tick || h("i", { class: "sv-m-notick", "aria-hidden": "true" }), h("span", { title: words(`method.${method}.what`, "") || null }, name(method))), note);
      const row = h("tr", { role: "row", "data-method": method }, head);
      GROUPS.forEach(([, columns]) => columns.forEach((column, i) => {
        cells[column] = h("td", { role: "cell", class: (i ? "" : "sv-m-first ") + "sv-m-" + column, "data-label": t("col." + column) });
        row.append(cells[column]);
      }));
      return { row, tick, note, cells };
    }

    // ---- asking ------------------------------------------------------------------------------------------------------
    start() {
      if (this.busy) return;
      const missing = this.missing();
      const methods = this.usual.methods.filter((m) => this.methods.has(m) && !(m in missing));
      Object.assign(this, { waiting: true, stopping: false, place: null });
      this.tell.measure({ methods, prompts: ["own", ...this.usual.examples].filter((p) => this.prompts.has(p)), max_new: this.tokens });
      this.draw();
    }
    end() {
      if (!this.busy || this.stopping) return;
      Object.assign(this, { waiting: false, stopping: true });
      this.draw();
      this.tell.halt();
    }
    // What the framework knows of the queue, and that an event failed, stands in its own mark, which is hidden.
    follow() {
      const host = document.getElementById("methods-view") || this.root.parentElement.parentElement;
      new MutationObserver(() => {
        const tracker = host.querySelector("[data-testid=status-tracker]");
        if (!tracker || !this.waiting) return;
        const place = /(\d+)\/(\d+)/.exec(tracker.textContent);
        if (tracker.querySelector(".error")) { this.waiting = false; this.lost = true; this.draw(); }
        else if (place && String(this.place) !== String(place.slice(1))) { this.place = place.slice(1); this.draw(); }
      }).observe(host, { subtree: true, childList: true, characterData: true });
    }
    missing() {
      const found = (sv.page.spec.targets[this.target] || {}).missing || [];
      return Array.isArray(found) ? Object.fromEntries(found.map((m) => [m, t("missing")])) : found;
    }

    // ---- drawing -----------------------------------------------------------------------------------------------------
    draw() {
      const value = this.value, rows = value.rows || {}, busy = this.busy;
      const shown = value.asked;
      const stale = shown && shown !== this.target;
      let say = value.say || { key: "methods.st.idle" };
      if (this.waiting) say = this.place ? { key: "methods.st.place", n: this.place[0], of: this.place[1] } : { key: "methods.st.queued" };
      else if (this.stopping && busy) say = { key: "methods.st.stopping" };
      else if (this.lost) say = { key: "methods.st.lost" };
      this.lost = false;
      const facts = { ...say, method: say.method ? name(say.method) : "", name: say.name ? words("page.f." + say.name, say.name) : "" };
      if (say.key === "page.st.loading") facts.text = sv.said(say.text || "");
      sv.text(this.say, sv.t(say.key, facts));
      this.say.dataset.state = this.waiting ? "queued" : value.state || "idle";
      this.bar.hidden = !busy;
      if (sv.finite(value.bar) && !this.waiting && !this.stopping) this.bar.value = value.bar;
      else this.bar.removeAttribute("value");
      this.go.setAttribute("aria-disabled", busy);
      this.stop.setAttribute("aria-disabled", !busy);
      this.table.setAttribute("aria-busy", busy);
      for (const button of this.save) button.hidden = !Object.keys(rows).length;

      const missing = this.missing(), refused = value.refused || {}, advice = value.advice || { cases: {} };
      const top = Math.max(1, ...Object.values(rows).map((row) => Math.max(row.speedup, row.predicted)));
      const order = ["plain", ...this.usual.methods];
      if (this.sorted) order.sort((a, b) => ((rows[b] || {}).speedup || 0) - ((rows[a] || {}).speedup || 0));
      order.forEach((method, i) => {
        const line = this.lines.get(method);
        if (this.body.children[i] !== line.row) this.body.insertBefore(line.row, this.body.children[i] || null);
        const why = shown === this.target && refused[method], failed = why ? sv.t(why.key, { ...why, method: name(why.method || method) }) : "";
        this.fill(method, line, stale ? null : rows[method], { absent: missing[method], failed }, { top, best: !stale && advice.best === method, now: busy && say.method === method });
      });
      this.conclude(advice, value.about || {}, stale);
      Object.assign(sv.stats.methods, { state: this.say.dataset.state, rows: order.length, measured: Object.keys(rows).length });
      sv.stats.methods.updates += 1;
    }
    // absent: why it cannot be had for this target; failed: why it could not be measured, which other settings may change
    fill(method, line, row, { absent, failed }, { top, best, now }) {
      const why = absent || failed;
      const { cells } = line, known = (this.props.known.targets[this.target] || {})[method] || {};
      const usual = this.props.known.methods[method] || {};
      line.row.classList.toggle("sv-m-off", Boolean(why));
      line.row.classList.toggle("sv-m-best-row", best);
      line.row.classList.toggle("sv-m-now", now);
      line.row.classList.toggle("sv-m-absent", Boolean(absent));
      if (line.tick) { line.tick.disabled = Boolean(absent); line.tick.checked = this.methods.has(method) && !absent; }
      sv.put(line.note, why ? why : best ? h("b", null, t(this.busy ? "best.mark.sofar" : "best.mark")) : now ? t("now") : (row || usual).paper || "");
      const put = (column, ...children) => {
        cells[column].classList.toggle("sv-m-empty", !children.length);
        sv.put(cells[column], ...(children.length ? children : [h("span", { class: "sv-dim", role: "img", "aria-label": t("notyet") }, "–")]));
      };
      const trained = known.trained, needs = (row || usual).needs;
      put("trained", ...this.trained(method, trained, needs, row, why));
      const count = row ? row.extra_parameters : trained && trained.parameters;
      if (sv.finite(count) && (row || count)) put("adds", count ? [many(count), h("small", null, row ? t("memory", { size: bytes(row.extra_bytes) }) : "", row && trained ? h("br") : null, trained ? t("file", { size: bytes(trained.bytes) }) : "")] : t("adds.none"));
      else put("adds", ...(needs === "" || needs === "target" || method === "plain" ? [t("adds.none")] : []));
      // under another rule only a run can tell
      const exact = row ? row.lossless : this.exact || method === "plain" ? usual.lossless : undefined;
      put("lossless", ...(exact === undefined ? [] : [exact ? t("yes") : h("b", { class: "sv-bad" }, t("no"))]));
      if (!row) { for (const column of ["tau", "alpha", "rows", "c", "v", "predicted", "measured", "same", "time"]) put(column); return; }
      put("tau", row.tau.toFixed(2));
      put("alpha", ...(row.alpha_by_depth.length ? [this.depths(row)] : [h("span", { class: "sv-dim" }, t("na"))]));
      put("rows", row.rows.toFixed(1));
      if (method === "plain") put("c", h("span", { class: "sv-dim" }, t("na")));
      else if (row.c === null) put("c", h("span", { title: t("c.nopass.help") }, row.draft_cost.toFixed(2), h("small", null, t("c.nopass"))));
      else put("c", row.c.toFixed(2), h("small", null, t("c.passes", { n: row.passes.toFixed(1) })));
      put("v", row.v.toFixed(2), h("small", null, t("v.measured", { n: row.v_measured.toFixed(2) })));
      put("predicted", times(row.predicted), h("small", null, t("gap", { n: (row.gap < 0 ? "−" : "+") + Math.abs(100 * row.gap).toFixed(0) })));
      put("measured", h("b", null, times(row.speedup)), this.gain(row, top), h("small", null, t("rate", { n: sv.speed(row.tokens_per_s_overall) })));
      const [same, of] = row.equal_to_plain.split("/");
      const drawn = (this.value.about || {}).temperature > 0;
      put("same", ...(method === "plain" ? [h("span", { class: "sv-dim" }, t("na"))] : drawn ? [h("span", { class: "sv-dim", title: t("same.drawn.help") }, t("same.drawn"))] : same === of ? [h("span", { class: "sv-good" }, `${same}/${of} ✓`)] : [h("b", { class: "sv-bad" }, `${same}/${of} ✕`)]));
      put("time", this.split(row));
    }
    trained(method, trained, needs, row, why) {
      if (method === "plain") return [t("trained.plain")];
      if (trained) {
        const said = [];
        if (sv.finite(trained.answer_tokens)) said.push(t("trained.tokens", { n: many(trained.answer_tokens) }));
        if (sv.finite(trained.agree)) said.push(t("trained.agree", { n: sv.percent(trained.agree) }));
        if (!said.length) said.push(t("trained.here"));
        return [said.join(" "), trained.command ? h("details", null, h("summary", null, t("trained.command")), h("code", null, trained.command)) : null];
      }
      if (needs === "model") return row && row.source ? [t("trained.model", { name: row.source })] : [];
      if (needs === "head") return why ? [] : [t("trained.weights")];
      if (row && row.extra_parameters) return [t("trained.weights")];
      return needs === "target" ? [t("trained.target")] : needs === "" ? [t("trained.nothing")] : [];
    }
    // alpha at each depth: a number, and a bar of that height
    depths(row) {
      const rates = row.alpha_by_depth.slice(0, DEPTHS);
      const spoken = row.alpha_by_depth.map((rate, i) => t("depth", { d: i + 1, rate: sv.percent(rate), n: row.examined_by_depth[i] })).join("; ");
      return h("span", { class: "sv-m-depths", title: spoken },
        h("span", { class: "sv-hidden" }, spoken),
        rates.map((rate) => h("span", { "aria-hidden": "true" }, h("i", { style: `height:${Math.max(1, 18 * rate)}px` }), h("small", null, rate >= 0.995 ? "1" : rate.toFixed(2).slice(1)))),
        row.alpha_by_depth.length > DEPTHS && h("span", { class: "sv-dim", "aria-hidden": "true" }, "…"));
    }
    // measured as a bar, predicted as a line across it, plain's 1 as a dotted one
    gain(row, top) {
      const at = (x) => `${(100 * x) / top}%`;
      return h("span", { class: "sv-m-gain", "aria-hidden": "true" }, h("i", { class: "sv-m-bar", style: `width:${at(row.speedup)}` }), h("i", { class: "sv-m-one", style: `left:${at(1)}` }), h("i", { class: "sv-m-tick", style: `left:${at(row.predicted)}` }));
    }
    split(row) {
      const each = row.seconds_per_iteration_ms, whole = PARTS.reduce((sum, part) => sum + each[part], 0) || 1;
      const spoken = PARTS.map((part) => t("part", { part: t("part." + part), ms: each[part].toFixed(each[part] < 9.95 ? 1 : 0), n: sv.percent(each[part] / whole) })).join("; ");
      return [h("span", { class: "sv-split", title: spoken, "aria-hidden": "true" }, PARTS.map((part) => h("i", { class: "sv-part sv-part-" + part, style: `flex-grow:${each[part] / whole}` }))),
        h("small", { "aria-hidden": "true" }, t("round", { ms: whole.toFixed(whole < 99.5 ? 1 : 0) })), h("span", { class: "sv-hidden" }, t("round", { ms: whole.toFixed(1) }) + ": " + spoken)];
    }
    conclude(advice, about, stale) {
      const told = stale ? t("stale", { name: about.target }) : advice.best ? t(this.busy ? "best.sofar" : "best", { name: name(advice.best), x: times(advice.speedup) }) : advice.plain ? t(this.busy ? "best.plain.sofar" : "best.plain") : t(this.busy ? "best.wait" : "best.none");
      sv.text(this.best, told);
      const v = Object.entries(about.v || {}).filter(([n]) => n !== "1").map(([n, cost]) => `${n}: ${cost.toFixed(2)}`).join(", ");
      sv.text(this.about, v ? t("about", { ...about, v, ms: sv.finite(about.target_pass_ms) ? about.target_pass_ms.toFixed(1) : "–", kernels: about.kernels || "–" }) : "");
      sv.put(this.advice, h("h3", null, t("choose")), h("ul", null, ["model", "scratch", "large", "nothing"].map((key) => {
        const here = stale ? null : advice.cases[key];
        return h("li", null, h("b", null, t(`case.${key}`)), " ", t(`case.${key}.why`), here ? h("span", { class: here.some(([, x]) => x > 1) ? "sv-m-here" : "sv-dim" }, " " + t("here", { list: here.map(([method, x]) => `${name(method)} ${times(x)}`).join(sv.lang === "zh" ? "，" : ", ") })) : null);
      })));
    }

    // ---- taking it away ----------------------------------------------------------------------------------------------
    download(kind) {
      const { about, rows, refused } = this.value;
      const text = kind === "json" ? JSON.stringify({ about, rows, refused, trained: this.props.known.targets[about.target] || {} }, null, 1) : csv(about, rows);
      const link = h("a", { href: URL.createObjectURL(new Blob([text], { type: kind === "json" ? "application/json" : "text/csv" })), download: `specviz-methods.${kind}` });
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    }
  }

  // One line a method; what is a list or an object becomes one cell. A leading sign that a spreadsheet would compute is quoted.
  function csv(about, rows) {
    const columns = [...new Set(Object.values(rows).flatMap((row) => Object.keys(row)))];
    const cell = (value) => {
      let shown = value === null || value === undefined ? "" : typeof value === "object" ? JSON.stringify(value) : String(value);
      if (typeof value !== "number" && /^[=+@\-\t]/.test(shown)) shown = "'" + shown;
      return /[",\n\r]/.test(shown) ? `"${shown.replaceAll('"', '""')}"` : shown;
    };
    const lines = [["target", "method", ...columns], ...Object.entries(rows).map(([method, row]) => [about.target, method, ...columns.map((column) => row[column])])];
    return lines.map((line) => line.map(cell).join(",")).join("\r\n") + "\r\n";
  }

  sv.methods = { mount, csv, choose: (what, name) => { chosen[what] = name; for (const one of views) one.draw(); } };
})();
