// One lane of the race: its numbers, its text, its bricks. Built once, then only changed where something changed.
(function () {
  "use strict";
  const sv = window.specviz;
  const { h, s } = sv;
  const COLUMNS = 44; // iterations that the bricks show: the last ones
  const KINDS = { a: "accepted", c: "recovered", b: "bonus", p: "plain" };
  sv.KINDS = { a: "accepted", r: "rejected", u: "untested", o: "probe", c: "recovered", b: "bonus", p: "plain", A: "cut", R: "cut", C: "cut", B: "cut", P: "cut" };

  sv.GLYPHS = { accepted: "✓", rejected: "✕", recovered: "↻", bonus: "+", cut: "✂", probe: "○" };

  class LaneCard {
    constructor(lane, pick) {
      this.lane = lane;
      this.shown = 0;
      this.changed = 0;
      this.follow = true;
      const part = (name, tag = "div") => (this[name] = h(tag, { class: "sv-" + name }));
      this.text = h("div", { class: "sv-text", tabindex: "0", role: "log", "aria-live": "off" });
      this.down = h("button", { type: "button", class: "sv-down", hidden: true, on: { click: () => this.toEnd() } }, "↓");
      this.spark = s("svg", { class: "sv-spark", viewBox: "0 0 120 34", preserveAspectRatio: "none", "aria-hidden": "true" },
        (this.sparkArea = s("path", { class: "sv-spark-area" })), (this.sparkLine = s("path", { class: "sv-spark-line" })));
      this.bricks = s("svg", { class: "sv-bricks", viewBox: "0 0 440 76", role: "img" });
      this.node = h("section", { class: "sv-lane" },
        h("header", { class: "sv-lane-head" }, part("name", "h3"), part("badges")),
        part("about"),
        h("div", { class: "sv-speed" }, h("div", null, part("big"), part("unit")), h("div", { class: "sv-speed-side" }, this.spark, part("now"))),
        part("facts", "dl"),
        h("div", { class: "sv-textbox" }, this.text, this.down),
        part("message"),
        h("div", { class: "sv-fold" }, part("brickshead"), this.bricks),
        part("split"), part("splitkey"));
      // Only the reader's own way up ends following; that the text grows does not.
      this.text.addEventListener("scroll", () => {
        const { scrollTop, clientHeight, scrollHeight } = this.text;
        if (scrollTop + clientHeight >= scrollHeight - 24) this.follow = true;
        else if (scrollTop < this.top - 2) this.follow = false;
        this.top = scrollTop;
        this.down.hidden = this.follow || scrollHeight <= clientHeight + 24;
      }, { passive: true });
      this.text.addEventListener("click", (event) => {
        const span = event.target.closest("[data-n]");
        const chosen = window.getSelection();
        if (!span || (chosen && !chosen.isCollapsed)) return;
        const token = lane.tokens[Number(span.dataset.n)];
        pick({ lane: lane.key, index: token.it, token: token.node });
      });
      this.newLine();
    }
    newLine() { this.line = this.text.appendChild(h("div", { class: "sv-line" })); }

    // `most` speed of all lanes, so that the sparklines share one scale.
    draw(most, fresh) {
      const lane = this.lane;
      if (fresh) { this.drawn = -1; this.state = null; }
      this.drawText(fresh);
      if (this.drawn === lane.its.length && this.state === lane.state && this.most === most && this.ended === lane.end) return;
      Object.assign(this, { drawn: lane.its.length, state: lane.state, most, ended: lane.end });
      this.drawHead();
      this.drawNumbers();
      this.drawSpark(most);
      this.drawBricks();
      this.drawSplit();
    }
    drawHead() {
      const { lane } = this, head = lane.head;
      sv.text(this.name, lane.name);
      this.node.dataset.state = lane.state;
      this.node.dataset.plain = head && head.method === "plain" ? "1" : "0";
      const badge = (kind, text, title) => h("span", { class: "sv-badge sv-badge-" + kind, title }, text);
      sv.put(this.badges,
        head && head.method !== "plain" && (head.lossless ? badge("good", sv.t("lane.lossless") + " ✓", sv.t("lane.lossless.help")) : badge("bad", sv.t("lane.lossy"), sv.t("lane.lossy.help"))),
        head && head.capture > 0 && badge("soft", sv.t("lane.traced"), sv.t("lane.traced.help", { n: head.capture })),
        badge("state", sv.t("state." + (lane.state === "done" ? "stop." + lane.stop : lane.state))));
      const about = head ? [head.target, head.drafter && sv.t("lane.drafter", { name: head.drafter }), head.device + " · " + head.dtype, head.method !== "plain" && sv.t("rule." + head.rule), ...Object.entries(head.knobs).map(([name, value]) => sv.knob(head.method, name, value))] : [];
      sv.put(this.about, about.filter(Boolean).join(" · "));
      sv.put(this.message, lane.message || "");
      this.message.hidden = !lane.message;
      this.text.setAttribute("aria-label", sv.t("lane.text", { lane: lane.name }));
    }
    drawNumbers() {
      const { lane } = this;
      sv.text(this.big, sv.speed(lane.speed));
      sv.text(this.unit, sv.t("lane.sofar"));
      sv.text(this.now, sv.t("lane.now", { n: sv.speed(lane.now()) }));
      const fact = (name, value, title) => h("div", { title }, h("dt", null, name), h("dd", null, value));
      const plain = lane.head && lane.head.method === "plain";
      sv.put(this.facts,
        fact(sv.t("fact.tokens"), String(lane.tokens.length)),
        fact("τ", lane.its.length ? sv.fixed(lane.tau, 2) : "–", sv.t("fact.tau")),
        plain ? fact("α", "–", sv.t("fact.alpha.plain")) : fact(sv.t("fact.alpha.of"), [sv.percent(lane.alpha), h("small", null, ` ${lane.accepted}/${lane.examined}`)], sv.t("fact.alpha")),
        fact(sv.t("fact.time"), sv.seconds(lane.time)),
        fact(sv.t("fact.prefill"), lane.prefill > 0 ? sv.seconds(lane.prefill) : "–", sv.t("fact.prefill.help")));
    }
    drawText(fresh) {
      const { lane } = this;
      if (fresh) {
        this.text.textContent = "";
        Object.assign(this, { shown: 0, changed: 0, top: 0, follow: !lane.over });
        this.newLine();
      }
      for (; this.changed < lane.changed.length; this.changed++) {
        const n = lane.changed[this.changed];
        const span = n < this.shown && this.text.querySelector(`[data-n="${n}"]`);
        if (span) sv.put(span, sv.bytes.nodes(lane.tokens[n].parts, false));
      }
      if (this.shown === lane.tokens.length) return;
      const plain = lane.head && lane.head.method === "plain";
      while (this.shown < lane.tokens.length) {
        const token = lane.tokens[this.shown];
        if (this.box === undefined || this.boxOf !== token.it || this.box.parentNode !== this.line) {
          this.box = this.line.appendChild(h("span", { class: "sv-box" }));
          this.boxOf = token.it;
        }
        const kind = plain ? "plain" : KINDS[token.letter];
        this.box.append(h("span", { class: "sv-tok sv-" + kind, "data-n": token.n, title: plain ? null : sv.t("kind." + kind) }, sv.bytes.nodes(token.parts, false)));
        this.shown += 1;
        if (token.parts.some((part) => part.text && part.text.endsWith("\n"))) this.newLine();
      }
      const chosen = window.getSelection();
      const busy = chosen && !chosen.isCollapsed && this.text.contains(chosen.anchorNode);
      if (this.follow && !busy) this.toEnd();
      else this.down.hidden = this.text.scrollHeight <= this.text.clientHeight + 24;
    }
    toEnd() {
      this.follow = true;
      this.down.hidden = true;
      this.text.scrollTop = this.text.scrollHeight;
      this.top = this.text.scrollTop;
    }
    drawSpark(most) {
      const { its } = this.lane;
      if (its.length < 2 || !(most > 0)) return;
      const points = [];
      const step = Math.max(1, Math.floor(its.length / 100));
      for (let k = 1; k < its.length; k += step) points.push([its[k].done, this.lane.now(k)]);
      points.push([its[its.length - 1].done, this.lane.now()]);
      const end = points[points.length - 1][0] || 1;
      const line = points.map(([t, v]) => `${((120 * t) / end).toFixed(1)},${(32 - (29 * Math.min(v, most)) / most).toFixed(1)}`).join("L");
      this.sparkLine.setAttribute("d", "M" + line);
      this.sparkArea.setAttribute("d", `M${line}L120,34L${((120 * points[0][0]) / end).toFixed(1)},34Z`);
    }
    // Above the line what an iteration cost (a big brick is a target pass, a small one a draft pass), below what it gave.
    drawBricks() {
      const { its, tokens } = this.lane;
      const from = Math.max(0, its.length - COLUMNS), shown = its.slice(from);
      const tallest = Math.max(1, ...shown.map((it) => it.passes)), gain = Math.max(1, ...shown.map((it) => it.count));
      const small = Math.min(6, 30 / tallest), dot = Math.min(6, 26 / gain);
      const paths = { target: "", draft: "", accepted: "", recovered: "", bonus: "", plain: "" };
      const brick = (x, y, w, tall) => `M${x},${y.toFixed(1)}h${w}v${tall.toFixed(1)}h-${w}z`;
      shown.forEach((it, k) => {
        const x = k * 10 + 1;
        paths.target += brick(x, 32, 8, 13);
        for (let j = 0; j < it.passes; j++) paths.draft += brick(x + 1.5, 31 - (j + 1) * small, 5, Math.max(small - 1, 0.6));
        for (let j = 0; j < it.count; j++) paths[KINDS[tokens[it.first + j].letter]] += brick(x + 1.5, 48 + j * dot, 5, Math.max(dot - 1, 0.6));
      });
      sv.put(this.bricks, s("line", { class: "sv-ground", x1: 0, x2: 440, y1: 46.5, y2: 46.5 }),
        Object.entries(paths).map(([name, d]) => d && s("path", { class: "sv-brick-" + name, d })));
      const title = sv.t("bricks.title", { target: its.length, draft: this.lane.passes, tokens: tokens.length });
      this.bricks.setAttribute("aria-label", title);
      sv.put(this.brickshead, title, from > 0 && h("span", { class: "sv-dim" }, " " + sv.t("bricks.last", { n: COLUMNS })));
    }
    drawSplit() {
      const { split, time } = this.lane;
      sv.put(this.split, split.map((x, k) => x > 0 && h("i", { class: "sv-part sv-part-" + sv.PHASES[k], style: `flex-grow:${x / (time || 1)}`, title: `${sv.t("phase." + sv.PHASES[k])} ${sv.seconds(x)}` })));
      this.split.setAttribute("role", "img");
      const words = split.map((x, k) => [sv.PHASES[k], x]).filter(([, x]) => x > 0);
      this.split.setAttribute("aria-label", words.map(([name, x]) => `${sv.t("phase." + name)} ${sv.percent(x / time)}`).join(", "));
      sv.put(this.splitkey, words.map(([name, x]) => h("span", null, h("i", { class: "sv-dot sv-part-" + name }), `${sv.t("phase." + name)} `, h("b", null, sv.percent(x / time)))));
    }
  }
  sv.LaneCard = LaneCard;
})();
