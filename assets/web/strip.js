// The token stream of one lane: a box an iteration with a seam in front of it, a button a token.
(function () {
  "use strict";
  const sv = window.specviz;
  const { h } = sv;

  class Strip {
    constructor(act) {
      this.node = h("div", { class: "sv-strip", role: "group" });
      this.boxes = [];
      this.changed = 0;
      const found = (event) => {
        const token = event.target.closest("[data-k]"), box = event.target.closest("[data-i]");
        return box && { it: Number(box.dataset.i), tok: token ? Number(token.dataset.k) : -1, node: token };
      };
      this.node.addEventListener("click", (event) => { const one = found(event); if (one) act.pin(one.it, one.tok); });
      this.node.addEventListener("mouseover", (event) => { const one = found(event); act.hover(one && one.node ? one : null); });
      this.node.addEventListener("mouseleave", () => act.hover(null));
    }
    reset() {
      this.node.textContent = "";
      this.boxes = [];
      this.chunk = null;
      this.changed = 0;
      this.current = null;
    }
    draw(lane) {
      const plain = lane.head && lane.head.method === "plain";
      for (; this.changed < lane.changed.length; this.changed++) this.refresh(lane, lane.changed[this.changed]);
      if (this.boxes.length < lane.its.length) {
        for (let i = this.boxes.length; i < lane.its.length; i++) this.add(lane, lane.its[i], plain);
      }
    }
    // Chunks end at a line break where there is one, and each is laid out by itself: what arrives moves only the last one.
    add(lane, it, plain) {
      if (!this.chunk || this.inChunk >= 64 || (this.broke && this.inChunk >= 10)) {
        this.chunk = this.node.appendChild(h("div", { class: "sv-chunk" }));
        this.inChunk = 0;
      } else if (this.broke) this.chunk.append(h("span", { class: "sv-break" }));
      const [box, breaks] = this.box(lane, it, plain);
      this.chunk.append(box);
      this.boxes.push(box);
      this.inChunk += 1;
      this.broke = breaks;
    }
    box(lane, it, plain) {
      const box = h("span", { class: "sv-iter", "data-i": it.index });
      let n = it.first, breaks = false;
      // of a tree's rejected candidates only the first where the path ends: the tree itself shows the others
      const tree = it.parents ? sv.shape(it) : null, end = tree && tree.path.length ? tree.path[tree.path.length - 1] : -1;
      const lost = tree ? tree.kids.get(end).find((k) => it.letters[k] === "r") : null;
      for (let k = 0; k < it.letters.length; k++) {
        const letter = it.letters[k];
        if (letter === "u" || letter === "o" || letter === "x" || letter === "R") continue;
        if (tree && letter === "r" && k !== lost) continue;
        const emitted = "abcp".includes(letter);
        const token = emitted ? lane.tokens[n++] : sv.bytes.single(it.names[k]);
        const kind = plain ? "plain" : sv.KINDS[letter];
        box.append(h("span", {
          class: `sv-tok sv-${kind}`, role: "button", tabindex: "-1", "data-k": k, "data-n": emitted ? token.n : null,
          "aria-label": sv.t("strip.token", { n: emitted ? token.n + 1 : "–", kind: sv.t("kind." + kind), text: sv.bytes.label(token.parts) }),
        }, sv.bytes.nodes(token.parts, true)));
        if (emitted && token.parts.some((part) => part.text && part.text.includes("\n"))) breaks = true;
      }
      return [box, breaks];
    }
    // a character that a later token completed now shows in the token that began it
    refresh(lane, n) {
      const token = lane.tokens[n], box = token && this.boxes[token.it];
      const span = box && box.querySelector(`[data-n="${n}"]`);
      if (span) sv.put(span, sv.bytes.nodes(token.parts, true));
    }
    // Marks the chosen token; iterations after `now` are dim while a replay runs.
    mark(it, tok, now, focus) {
      if (this.current) { this.current.classList.remove("sv-current"); this.current.tabIndex = -1; }
      if (this.now !== it) {
        const before = this.boxes[this.now];
        if (before) before.classList.remove("sv-now");
      }
      const box = this.boxes[it];
      this.now = it;
      this.node.classList.toggle("sv-playing", now >= 0);
      if (now >= 0) for (let k = 0; k < this.boxes.length; k++) this.boxes[k].classList.toggle("sv-later", k > now);
      else if (this.dimmed) for (const one of this.boxes) one.classList.remove("sv-later");
      this.dimmed = now >= 0;
      if (!box) { this.current = null; return; }
      box.classList.add("sv-now");
      this.current = box.querySelector(`[data-k="${tok}"]`) || box.lastElementChild;
      if (!this.current) return;
      this.current.classList.add("sv-current");
      this.current.tabIndex = 0;
      if (focus) this.current.focus({ preventScroll: true });
      const own = box.getBoundingClientRect(), frame = this.node.getBoundingClientRect();
      if (own.top < frame.top || own.bottom > frame.bottom) this.node.scrollTop += own.top - frame.top - frame.height / 3;
    }
  }
  sv.Strip = Strip;
})();
