// The candidate tree: root on the left, depth to the right. Nodes are buttons, the lines between them are drawn behind.
(function () {
  "use strict";
  const sv = window.specviz;
  const { h, s } = sv;
  const DENSE = 14; // rows: more are drawn with one line a node
  const SIZES = { normal: { wide: 120, tall: 38, right: 24, down: 7 }, drawn: { wide: 152, tall: 38, right: 24, down: 7 }, dense: { wide: 150, tall: 21, right: 22, down: 4 } };
  const NARROW = { wide: -12, right: -8 }; // on a small screen
  const EDGE = 10; // around the drawing

  class Tree {
    constructor(act) {
      this.act = act;
      this.lines = s("svg", { class: "sv-tree-lines", "aria-hidden": "true" });
      this.nodes = h("div", { class: "sv-tree-nodes", role: "group" });
      this.inner = h("div", { class: "sv-tree-inner" }, this.lines, this.nodes);
      // Where the drawing is wider than its frame, it begins at the root, and a line below says that it goes on.
      const step = (by) => h("button", { type: "button", class: "sv-button", on: { click: () => { this.node.scrollLeft += by * 0.7 * this.node.clientWidth; } } });
      this.toRoot = step(-1);
      this.deeper = step(1);
      this.more = h("div", { class: "sv-tree-more", hidden: true }, this.toRoot, this.deeper);
      this.node = h("div", { class: "sv-tree" }, this.inner);
      this.node.addEventListener("scroll", () => this.ends(), { passive: true });
      const found = (event) => { const one = event.target.closest("[data-k]"); return one && Number(one.dataset.k); };
      this.nodes.addEventListener("click", (event) => { const k = found(event); if (k !== null) act.pin(k); });
      this.nodes.addEventListener("mouseover", (event) => { const k = found(event); if (k !== null) act.over(k); });
      this.nodes.addEventListener("mouseleave", () => act.over(null));
      this.nodes.addEventListener("focusin", (event) => { const k = found(event); if (k !== null) act.point(k); });
      this.nodes.addEventListener("focusout", () => act.point(null));
    }
    // facts: what the second line of each node says ("verdict" | "belief"); probes: whether they are drawn
    draw(it, detail, { waiting, facts, probes, root, narrow }) {
      const shape = sv.shape(it);
      const shown = (k) => (probes || it.letters[k] !== "o") && !(waiting && k === shape.count);
      const { row, order, rows, deepest } = sv.shape.place(shape.kids, shown);
      const dense = rows > DENSE, drawn = detail && detail.nodes.some((one) => one.q !== null);
      const size = { ...SIZES[dense ? "dense" : drawn || facts === "belief" ? "drawn" : "normal"] };
      if (narrow) for (const [side, change] of Object.entries(NARROW)) size[side] += change;
      const x = (depth) => EDGE + depth * (size.wide + size.right), y = (k) => EDGE + row.get(k) * (size.tall + size.down);
      const width = x(deepest) + size.wide + EDGE, height = EDGE * 2 + rows * (size.tall + size.down) - size.down;
      Object.assign(this, { order, shape, digits: dense ? 2 : 3, wide: size.wide, spots: new Map(), edges: new Map() });
      this.inner.style.width = width + "px";
      this.inner.style.height = height + "px";
      this.node.classList.toggle("sv-dense", dense);
      for (const [name, value] of [["width", width], ["height", height], ["viewBox", `0 0 ${width} ${height}`]]) this.lines.setAttribute(name, value);
      const onPath = new Set(waiting ? [] : shape.path);
      const lines = [];
      for (const k of order) {
        const parent = shape.parents[k], from = parent < 0 ? 0 : shape.depth[parent];
        const x1 = x(from) + size.wide, y1 = y(parent) + size.tall / 2, x2 = x(shape.depth[k]), y2 = y(k) + size.tall / 2;
        const bend = x1 + size.right / 2;
        const kind = onPath.has(k) ? "path" : k === shape.count ? "last" : it.letters[k] === "o" ? "probe" : "other";
        const line = s("path", { class: "sv-edge sv-edge-" + kind + (kind === "last" ? " sv-edge-" + sv.KINDS[it.letters[k]] : ""), d: `M${x1},${y1}C${bend},${y1} ${bend},${y2} ${x2},${y2}` });
        this.edges.set(k, line);
        lines.push([kind === "path" ? 1 : 0, line]);
      }
      sv.put(this.lines, lines.sort((a, b) => a[0] - b[0]).map((one) => one[1])); // the accepted path lies on top
      this.root = h("div", { class: "sv-node sv-node-root", style: `left:${x(0)}px;top:${y(-1)}px;width:${size.wide}px;height:${size.tall}px`, title: sv.t("tree.root.help") },
        h("span", { class: "sv-node-top" }, root ? h("span", { class: "sv-tok" }, sv.bytes.nodes(sv.bytes.single(root).parts, true)) : null), h("small", null, sv.t("tree.root")));
      sv.put(this.nodes, this.root, order.map((k) => this.spot(it, detail, k, { waiting, facts, style: `left:${x(shape.depth[k])}px;top:${y(k)}px;width:${size.wide}px;height:${size.tall}px` })));
      this.nodes.setAttribute("aria-label", sv.t("tree.label", { n: shape.candidates }));
      sv.text(this.toRoot, sv.t("tree.back"));
      sv.text(this.deeper, sv.t("tree.deeper"));
      this.current = undefined;
      this.fresh = true;
    }
    spot(it, detail, k, { waiting, facts, style }) {
      const isLast = k === this.shape.count, letter = waiting && it.letters[k] !== "o" ? "u" : it.letters[k];
      const kind = waiting && letter === "u" ? "drafted" : sv.KINDS[letter] || "untested";
      const shown = sv.bytes.single(it.names[k]), one = detail && !isLast ? detail.nodes[k] : null;
      const numbers = isLast ? [sv.t("kind." + kind)] : one ? (facts === "belief" ? belief(detail, k) : verdict(one, waiting || detail.rule === "typical", this.digits)) : [];
      const above = this.shape.parents[k] < 0 ? sv.t("tree.root") : sv.bytes.single(it.names[this.shape.parents[k]]).label;
      const label = sv.t("tree.node", { n: k + 1, text: shown.label, above, kind: sv.t("kind." + kind), facts: numbers.join(", ") });
      const button = h("button", { type: "button", class: `sv-node sv-node-${kind}`, style, "data-k": k, "data-verdict": kind, tabindex: "-1", title: label, "aria-label": label },
        h("span", { class: "sv-node-top" }, h("span", { class: "sv-glyph sv-ink-" + kind, "aria-hidden": "true" }, sv.GLYPHS[kind] || "·"), h("span", { class: "sv-tok sv-" + kind }, sv.bytes.nodes(shown.parts, true))),
        h("small", { class: fits(numbers, this.wide) ? null : "sv-node-long" }, numbers.map((text) => h("span", null, text))));
      const score = facts === "belief" && one && detail.note.score ? detail.note.score[k] : null;
      if (sv.finite(score)) button.append(h("i", { class: "sv-node-bar", style: `width:${100 * Math.min(1, Math.max(0, score))}%` }));
      this.spots.set(k, button);
      return button;
    }
    // The chosen node has the ring and the place in the tab order.
    mark(k, focus) {
      const before = this.spots.get(this.current), now = this.spots.get(k);
      if (before && before !== now) { before.classList.remove("sv-current"); before.tabIndex = -1; before.setAttribute("aria-pressed", "false"); }
      if (!now) { this.current = undefined; const first = this.spots.get(this.order[0]); if (first) first.tabIndex = 0; return; }
      now.classList.add("sv-current");
      now.tabIndex = 0;
      now.setAttribute("aria-pressed", "true");
      if (focus) now.focus({ preventScroll: true });
      if (this.current !== k || focus) this.reveal(now);
      if (this.fresh && !focus) this.reveal(this.root); // a tree is read from its root: where both do not fit, that comes first
      this.current = k;
      if (this.node.clientWidth) this.fresh = false;
      this.ends();
    }
    reveal(spot) {
      const { scrollLeft, scrollTop, clientWidth, clientHeight } = this.node;
      this.node.scrollLeft = into(spot.offsetLeft, spot.offsetWidth, scrollLeft, clientWidth);
      this.node.scrollTop = into(spot.offsetTop, spot.offsetHeight, scrollTop, clientHeight);
    }
    ends() {
      const { scrollLeft, clientWidth, scrollWidth } = this.node;
      this.more.hidden = scrollWidth <= clientWidth + 1;
      this.toRoot.setAttribute("aria-disabled", scrollLeft <= 1);
      this.deeper.setAttribute("aria-disabled", scrollLeft + clientWidth >= scrollWidth - 1);
    }
    // The way down to a node: its nodes and lines; null: none.
    light(k) {
      const on = new Set(k === null || !this.shape ? [] : sv.shape.trail(this.shape, k));
      for (const [node, spot] of this.spots || []) spot.classList.toggle("sv-trail", on.has(node));
      for (const [node, line] of this.edges || []) line.classList.toggle("sv-trail", on.has(node));
      this.inner.classList.toggle("sv-lit", on.size > 0);
    }
  }
  // Where to scroll to, as little as may be, so that what begins there and is so long is seen.
  function into(start, length, at, room) {
    return start < at + EDGE ? Math.max(0, start - EDGE) : Math.max(at, start + length + EDGE - room);
  }
  // Whether the second line of a node has room at its usual size: a cut digit would be another number. In pixels.
  function fits(numbers, wide) {
    return 5.75 * numbers.join("").length + 7 * (numbers.length - 1) <= wide - 10;
  }
  // Tested: the p and q that the test used, beside its u. Untested (or untold: nothing was tossed, or not yet): the target's p, and q where
  // it was drawn from a law.
  function verdict(one, untold, digits) {
    const test = untold ? null : one.test;
    if (!test) return [one.letter !== "o" && sv.finite(one.p) && "p " + sv.prob(one.p, digits), one.q !== null && "q " + sv.prob(one.q, digits)].filter(Boolean);
    const other = sv.finite(one.p) && Math.abs(test.p - one.p) > 1e-9; // what earlier siblings left of p
    const short = sv.prob(test.u, digits) !== sv.prob(test.p, digits), [u, p] = short ? [sv.prob(test.u, digits), sv.prob(test.p, digits)] : sv.pair(test.u, test.p);
    return [(other ? "p′ " : "p ") + p, one.q !== null && "q " + sv.prob(test.q, digits), "u " + u].filter(Boolean);
  }
  function belief(detail, k) {
    const { own, score, rank, part } = detail.note;
    const of = (list, name) => (Array.isArray(list) && sv.finite(list[k]) ? name(list[k]) : null);
    const path = of(score, (x) => sv.t("tree.score", { n: sv.prob(x, 2) }));
    if (Array.isArray(part) && typeof part[k] === "string") return [sv.part(part[k]), path].filter(Boolean);
    return [of(rank, (n) => "#" + (n + 1)), of(own, (x) => sv.t("tree.own", { n: sv.prob(x, 2) })), path].filter(Boolean);
  }
  sv.Tree = Tree;
})();
