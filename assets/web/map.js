// The candidates of a round: their tree and the mask they were scored under, coupled. A chain is drawn by its chips already.
(function () {
  "use strict";
  const sv = window.specviz;
  const { h } = sv;

  class CandidateMap {
    constructor(view) {
      this.view = view;
      this.open = { tree: true, chain: false }; // whether the mask is shown: the reader's choice for each kind of round
      this.facts = "verdict";
      this.probes = null;
      const act = {
        pin: (k) => view.pin(this.it.index, k),
        over: (k) => { this.point(k); view.hover(k === null || k < 0 ? null : { it: this.it.index, tok: k }); },
        point: (k) => this.point(k),
      };
      this.tree = new sv.Tree(act);
      this.mask = new sv.Mask(act);
      const toggle = (act_, run) => h("button", { type: "button", class: "sv-seg", "data-act": act_, on: { click: () => { run(); this.key = ""; sv.soon(() => this.again()); } } });
      this.asVerdict = toggle("verdict", () => { this.facts = "verdict"; });
      this.asBelief = toggle("belief", () => { this.facts = "belief"; });
      this.withProbes = toggle("probes", () => { this.probes = !this.shows; });
      this.maskButton = toggle("mask", () => { const kind = this.kind(); this.open[kind] = !this.open[kind]; });
      this.title = h("h4");
      this.help = h("p", { class: "sv-dim" });
      this.treeHead = h("div", { class: "sv-segs", role: "group" }, this.asVerdict, this.asBelief);
      this.treePane = h("div", { class: "sv-map-tree" }, this.tree.node, this.tree.more);
      this.maskTitle = h("h4");
      this.maskPane = h("div", { class: "sv-map-mask" }, this.maskTitle, this.mask.node);
      this.node = h("section", { class: "sv-map", hidden: true },
        h("div", { class: "sv-block-head" }, this.title, h("div", { class: "sv-map-tools" }, this.treeHead, h("div", { class: "sv-segs", role: "group" }, this.withProbes, this.maskButton))),
        this.help, h("div", { class: "sv-map-panes" }, this.treePane, this.maskPane));
    }
    kind() { return sv.shape(this.it).tree ? "tree" : "chain"; }
    // like draw(), with what was drawn last
    again() { if (this.last) this.draw(...this.last); }
    draw(lane, it, detail, tok, waiting, focus) {
      this.last = [lane, it, detail, tok, waiting, ""];
      this.it = it;
      const shape = sv.shape(it), kind = this.kind(), { note } = detail || { note: {} };
      this.node.hidden = shape.count === 0;
      if (shape.count === 0) return;
      const believed = Array.isArray(note.own) || Array.isArray(note.score) || Array.isArray(note.rank);
      const facts = believed && !waiting ? this.facts : "verdict";
      // where a method shows its probes in a picture of their own, the tree is for the candidates
      this.shows = this.probes ?? !(shape.probes.length > 8 && (detail ? Boolean(note.window) : true));
      const open = this.open[kind], width = this.node.clientWidth;
      const key = [lane.key, it.index, Boolean(detail), waiting, facts, this.shows, open, sv.lang, this.view.generation, width > 700 ? "wide" : width].join();
      if (key !== this.key) {
        this.key = key;
        this.pointed = null;
        this.words(shape, kind, believed, facts, open);
        const before = it.first > 0 ? lane.tokens[it.first - 1] : null;
        const root = detail ? detail.root.name : before ? lane.its[before.it].names[before.node] : "";
        this.treePane.hidden = kind === "chain";
        this.maskPane.hidden = !open;
        if (kind === "tree") this.tree.draw(it, detail, { waiting, facts, probes: this.shows, root, narrow: width < 500 });
        const prefix = Math.max(0, (lane.head ? lane.head.prompt_tokens : 0) + it.first - 1);
        if (open) this.mask.draw(it, { waiting, root, prefix, room: Math.min(470, width - 34) });
      }
      this.tok = tok;
      if (kind === "tree") this.tree.mark(tok, focus);
      this.light();
    }
    words(shape, kind, believed, facts, open) {
      sv.text(this.title, kind === "tree" ? sv.t(shape.probes.length ? "tree.title.probes" : "tree.title", { n: shape.candidates, probes: shape.probes.length }) : sv.t("mask.title.chain"));
      sv.text(this.help, sv.t(kind === "tree" ? (facts === "belief" ? "tree.help.belief" : (this.last[2] || {}).rule === "typical" ? "tree.help.typical" : "tree.help") : "mask.help"));
      this.help.hidden = kind === "chain" && !open;
      sv.text(this.maskTitle, sv.t("mask.title"));
      this.maskTitle.hidden = kind === "chain";
      this.treeHead.hidden = kind === "chain" || !believed;
      this.withProbes.hidden = kind === "chain" || shape.probes.length === 0;
      const set = (button, key, on) => { sv.text(button, sv.t(key)); button.setAttribute("aria-pressed", String(on)); };
      set(this.asVerdict, "tree.as.verdict", facts === "verdict");
      set(this.asBelief, "tree.as.belief", facts === "belief");
      set(this.withProbes, "tree.probes", this.shows);
      set(this.maskButton, "mask.button", open);
      this.treeHead.setAttribute("aria-label", sv.t("tree.as"));
    }
    // k: the node that the pointer or the focus is on (-1: the root); null: none, then the mask shows the chosen one
    point(k) {
      this.pointed = k;
      this.light();
    }
    light() {
      const { pointed } = this, node = pointed ?? this.tok;
      this.tree.light(pointed ?? null);
      if (this.open[this.kind()]) this.mask.light(node ?? null);
    }
    // The next node up or down in the drawing; chains go by number.
    next(tok, by) {
      const shape = this.it && sv.shape(this.it);
      if (!shape || !shape.tree || !this.tree.order) return Math.max(0, tok + by);
      const { order } = this.tree, at = order.indexOf(tok);
      return at < 0 ? order[0] : order[Math.min(order.length - 1, Math.max(0, at + by))];
    }
  }
  sv.CandidateMap = CandidateMap;
})();
