// How a round was drafted: what its method noted. Each kind of note has its picture, whatever the method; others are listed.
(function () {
  "use strict";
  const sv = window.specviz;
  const { h } = sv;
  const DRAWN = ["own", "score", "rank", "window", "guesses", "chance", "threshold", "taps", "size", "grown", "part", "from", "pool", "pool_size"];

  const list = (value) => (Array.isArray(value) ? value : []);
  const known = (name) => sv.has("page.method." + name);
  const method = (name) => (known(name) ? sv.t("page.method." + name) : String(name));
  const token = (one, kind = "drafted") => (one ? h("span", { class: "sv-tok sv-" + kind }, sv.bytes.nodes(sv.bytes.single(one.name).parts, true)) : h("span", { class: "sv-dim" }, "–"));
  const block = (title, help, ...children) => h("div", { class: "sv-block" }, h("h4", null, title), help && h("p", { class: "sv-dim" }, help), children);
  const scroll = (label, ...children) => h("div", { class: "sv-scroll", tabindex: "0", role: "region", "aria-label": label }, children);
  const bar = (x, most, kind) => h("i", { class: "sv-mini sv-mini-" + kind, style: `width:${most > 0 ? (100 * Math.min(Math.max(x, 0), most)) / most : 0}%` });

  class Drafted {
    constructor(pin) {
      this.pin = pin;
      this.node = h("section", { class: "sv-card sv-origin", hidden: true });
    }
    // detail: as in views/detail.py, or null while it is not there; waiting: a replay stands before the verdict
    draw(lane, it, detail, waiting) {
      const plain = lane.head && lane.head.method === "plain";
      this.node.hidden = plain || !detail;
      if (this.node.hidden) { this.key = ""; return; }
      const key = [lane.key, it.index, waiting, sv.lang, detail.nodes.length].join();
      if (key === this.key && detail === this.detail) return;
      Object.assign(this, { key, detail, it, waiting, shape: sv.shape(it) });
      const { note } = detail, name = detail.method;
      const blocks = [this.size(note), this.parts(note), this.taps(note), this.heads(note), this.levels(note), this.window(note), this.guesses(note), this.chance(note), this.copied(note), this.others(note)];
      sv.put(this.node,
        h("header", null, h("h4", null, sv.t("drafted.title", { method: method(detail.method) })),
          sv.has("method." + name + ".what") && h("p", { class: "sv-dim" }, sv.t("method." + name + ".what"), sv.has("method." + name + ".paper") && sv.t("method." + name + ".paper") ? h("span", { class: "sv-paper" }, " " + sv.t("method." + name + ".paper")) : null)),
        blocks.filter(Boolean));
    }
    kind(k) { return this.waiting ? "drafted" : sv.KINDS[this.it.letters[k]] || "untested"; }
    glyph(k) { return this.waiting ? "" : sv.GLYPHS[this.kind(k)] || "·"; }
    // A drafted node as a small button that opens its card.
    chip(k, ...more) {
      const one = this.detail.nodes[k];
      return h("button", { type: "button", class: "sv-mini-chip", "data-k": k, title: sv.t("kind." + this.kind(k)), on: { click: () => this.pin(k) } },
        h("span", { class: "sv-glyph sv-ink-" + this.kind(k), "aria-hidden": "true" }, this.glyph(k)), token(one, this.kind(k)), more);
    }
    size(note) {
      const { candidates } = this.shape;
      const said = [];
      if (sv.finite(note.grown) && note.grown > candidates) said.push(sv.t("drafted.grown", { n: candidates, grown: note.grown }));
      if (sv.finite(note.size)) said.push(sv.t(note.size > 0 ? "drafted.size" : "drafted.auto", { n: note.size }));
      return said.length ? h("p", null, said.join(" ")) : null;
    }
    // Which part of a composed method each node came from.
    parts(note) {
      const parts = typeof note.part === "string" ? [note.part] : list(note.part);
      if (!parts.length) return null;
      const names = [...new Set(parts)].slice(0, 8), of = (name) => parts.map((one, k) => k).filter((k) => parts[k] === name && k < this.detail.nodes.length);
      const alone = names.length === 1 && h("p", { class: "sv-sentence" }, sv.t("drafted.part", { method: sv.part(names[0]) }));
      if (alone) return alone;
      return block(sv.t("drafted.parts"), sv.t("drafted.parts.help"), scroll(sv.t("drafted.parts"), h("table", { class: "sv-table" },
        names.map((name) => h("tr", null, h("th", { scope: "row" }, sv.part(name)), h("td", null, h("div", { class: "sv-mini-chips" }, of(name).slice(0, 64).map((k) => this.chip(k)))))))));
    }
    taps(note) {
      const taps = list(note.taps).filter(sv.finite);
      if (!taps.length) return null;
      return block(sv.t("drafted.taps"), sv.t("drafted.taps.help"), h("div", { class: "sv-taps" }, taps.map((tap) => h("span", { class: "sv-badge" }, sv.t(tap === 0 ? "drafted.tap.first" : "drafted.tap", { n: tap })))));
    }
    // Heads that each speak for one depth: what each said, best first. A token that stands on several branches is listed once.
    heads(note) {
      const ranks = list(note.rank);
      if (!ranks.length) return null;
      const rows = new Map();
      this.detail.nodes.forEach((node, k) => {
        if (node.letter === "o" || !sv.finite(ranks[k])) return;
        const row = rows.get(node.depth) || rows.set(node.depth, new Map()).get(node.depth), before = row.get(ranks[k]);
        const better = before === undefined || "aA".includes(node.letter) || ("rR".includes(node.letter) && !"aA".includes(this.detail.nodes[before].letter));
        if (better) row.set(ranks[k], k);
      });
      const own = list(note.own);
      return block(sv.t("drafted.heads"), sv.t("drafted.heads.help"), scroll(sv.t("drafted.heads"), h("table", { class: "sv-table" },
        [...rows].sort((a, b) => a[0] - b[0]).map(([depth, row]) => h("tr", null, h("th", { scope: "row" }, sv.t("drafted.head", { n: depth })),
          h("td", null, h("div", { class: "sv-mini-chips" }, [...row].sort((a, b) => a[0] - b[0]).map(([rank, k]) => this.chip(k, h("small", null, ` #${rank + 1}`, sv.finite(own[k]) ? " " + sv.prob(own[k], 2) : "")))))))))); 
    }
    // Depth by depth: what the draft believed, and what became of it.
    levels(note) {
      const score = list(note.score);
      if (!score.some(sv.finite)) return null;
      const levels = [];
      this.detail.nodes.forEach((node, k) => {
        if (node.letter === "o" || !sv.finite(score[k])) return;
        const level = (levels[node.depth] ||= { count: 0, sum: 0, best: -1 });
        level.count += 1;
        level.sum += score[k];
        if (level.best < 0 || score[k] > score[level.best]) level.best = k;
      });
      const expected = levels.reduce((sum, level) => sum + level.sum, 0), accepted = this.shape.path.length;
      const row = (level, depth) => {
        const taken = this.shape.path[depth - 1];
        return h("tr", null, h("th", { scope: "row" }, depth), h("td", null, level.count), h("td", null, this.chip(level.best, h("small", null, " " + sv.prob(score[level.best], 2)))),
          h("td", { class: "sv-mini-cell" }, bar(level.sum, 1, "belief"), h("span", null, sv.fixed(level.sum, 2))),
          h("td", null, this.waiting ? "" : taken === undefined ? "–" : this.chip(taken)));
      };
      const heads = ["depth", "kept", "likeliest", "expected", "became"].map((name) => h("th", { scope: "col" }, sv.t("drafted.col." + name)));
      return block(sv.t("drafted.belief"), sv.t("drafted.belief.help"),
        scroll(sv.t("drafted.belief"), h("table", { class: "sv-table" }, h("thead", null, h("tr", null, heads)), h("tbody", null, levels.map(row)))),
        !this.waiting && this.shape.last && h("p", null, sv.t("drafted.belief.sum", { expected: sv.fixed(expected, 2), accepted })));
    }
    // Lookahead: each level guesses one place further than the one above it; column 0 of the first is the root itself. Where the cells are
    // the round's probes, in order, they open their cards.
    window(note) {
      const levels = list(note.window).map(list);
      if (!levels.length) return null;
      const { probes } = this.shape, sizes = levels.map((level) => level.length), all = sizes.reduce((a, b) => a + b, 0);
      const starts = sizes.map((none, n) => sizes.slice(0, n).reduce((a, b) => a + b, 0));
      const columns = Math.max(sizes[0] + 1, ...sizes), title = sv.t("drafted.window", { w: columns, n: levels.length });
      const cell = (n, k) => {
        const one = n === 0 ? (k === 0 ? this.detail.root : levels[0][k - 1]) : levels[n][k], at = starts[n] + (n === 0 ? k - 1 : k);
        if (n === 0 && k === 0) return h("td", { class: "sv-window-root" }, token(one, "plain"));
        return h("td", null, one === undefined ? "" : all === probes.length && one ? this.chip(probes[at]) : token(one, "probe"));
      };
      return block(title, sv.t(probes.length ? "drafted.window.help" : "drafted.window.jacobi"), scroll(title, h("table", { class: "sv-table sv-window" },
        h("thead", null, h("tr", null, h("th", { scope: "col" }, sv.t("drafted.level")), Array.from({ length: columns }, (none, k) => h("th", { scope: "col" }, k === 0 ? sv.t("tree.root") : k)))),
        h("tbody", null, levels.map((level, n) => h("tr", null, h("th", { scope: "row" }, n + 1), Array.from({ length: columns }, (none, k) => cell(n, k))))))));
    }
    guesses(note) {
      const guesses = list(note.guesses).map(list), has = sv.finite(note.pool) || sv.finite(note.pool_size);
      if (!guesses.length && !has) return null;
      const path = this.shape.path.map((k) => this.detail.nodes[k].id);
      const same = (guess) => { let n = 0; while (!this.waiting && n < guess.length && guess[n] && n < path.length && guess[n].id === path[n]) n += 1; return n; };
      const best = Math.max(0, ...guesses.map(same));
      return block(sv.t("drafted.pool"), sv.t("drafted.pool.help"),
        has && h("p", null, sv.finite(note.pool) && sv.t("drafted.pool.here", { n: note.pool }), " ", sv.finite(note.pool_size) && sv.t("drafted.pool.size", { n: note.pool_size })),
        guesses.length ? h("ol", { class: "sv-guesses" }, guesses.map((guess) => {
          const n = same(guess);
          return h("li", { class: n > 0 && n === best ? "sv-guess-best" : null }, guess.map((one, k) => token(one, k < n ? "accepted" : "drafted")), h("small", null, n ? " " + sv.t("drafted.guess", { n }) : ""));
        })) : h("p", { class: "sv-dim" }, sv.t("drafted.noguess")));
    }
    // Adaptive length: the chance that each drafted token holds, and their product against the threshold that ends the draft.
    chance(note) {
      const chance = list(note.chance).filter(sv.finite);
      if (!chance.length) return null;
      const { threshold = note.threshold } = this.detail.knobs;
      let all = 1;
      const rows = chance.slice(0, this.detail.nodes.length).map((x, k) => {
        all *= x;
        return h("tr", null, h("td", null, this.chip(k)), h("td", { class: "sv-mini-cell" }, bar(x, 1, "belief"), h("span", null, sv.prob(x))), h("td", { class: sv.finite(threshold) && 1 - all > threshold ? "sv-over" : null }, sv.prob(1 - all), sv.finite(threshold) && 1 - all > threshold ? " > " + threshold : ""));
      });
      return block(sv.t("drafted.chance"), sv.t("drafted.chance.help"),
        scroll(sv.t("drafted.chance"), h("table", { class: "sv-table" }, h("thead", null, h("tr", null, ["token", "chance", "all"].map((name) => h("th", { scope: "col" }, sv.t("drafted.col." + name))))), h("tbody", null, rows))),
        sv.finite(threshold) && h("p", { class: "sv-dim" }, sv.t("drafted.threshold", { n: threshold })),
        h("p", null, this.it.reason ? sv.t("drafted.ended", { why: sv.reason(this.it.reason) }) : sv.t("drafted.full")));
    }
    copied(note) {
      return sv.finite(note.from) ? h("p", null, sv.t(sv.finite(note.ngram) ? "drafted.copied" : "drafted.copied.from", { n: note.ngram, at: note.from + 1 })) : null;
    }
    others(note) {
      const rest = Object.entries(note).filter(([name, value]) => !DRAWN.includes(name) && !(name === "ngram" && sv.finite(note.from)) && ["string", "number", "boolean"].includes(typeof value));
      return rest.length ? h("dl", { class: "sv-facts" }, rest.map(([name, value]) => h("div", null, h("dt", null, sv.has("note." + name) ? sv.t("note." + name) : name), h("dd", null, typeof value === "number" && !Number.isInteger(value) ? sv.prob(value) : String(value))))) : null;
    }
  }
  sv.part = (name) => (sv.has("part." + name) ? sv.t("part." + name) : method(name));
  // Why a draft is shorter than asked for: the drafter's words where the tables have none.
  sv.reason = (reason) => (sv.has("reason." + reason) ? sv.t("reason." + reason) : reason);
  sv.Drafted = Drafted;
})();
