// Inspect: one lane, one iteration, one token. Moving, replaying by the recorded times, and fetching what a choice needs.
(function () {
  "use strict";
  const sv = window.specviz;
  const { h } = sv;
  const SPEEDS = [0.25, 0.5, 1, 2, 4];
  const KEPT = 400; // fetched iterations
  const PAUSE = 120; // ms between two requests while moving fast

  class Inspect {
    constructor(root, channel, server) {
      Object.assign(this, { channel, server, stale: true, lane: null, it: -1, tok: 0, hovered: null, playing: false, speed: 1, follow: true, clock: 0 });
      Object.assign(this, { details: new Map(), asked: 0, draw: this.draw.bind(this) });
      this.strip = new sv.Strip({ pin: (it, tok) => this.pin(it, tok), hover: (one) => this.hover(one) });
      this.card = new sv.Card();
      this.rail = new sv.Rail(this);
      this.round = new sv.Round(this);
      this.map = new sv.CandidateMap(this);
      this.drafted = new sv.Drafted((tok) => this.pin(this.iteration.index, tok));
      this.column = h("div", { class: "sv-column" }, this.round.node, this.card.node);
      this.live = h("div", { class: "sv-hidden", "aria-live": "polite" });
      this.columns = h("div", { class: "sv-columns" }, this.column, this.card.lawsNode);
      this.body = h("div", { class: "sv-inspect-body" }, this.rail.node, this.strip.node, this.columns, this.map.node, this.drafted.node);
      this.empty = h("p", { class: "sv-empty" });
      this.node = h("div", { class: "sv sv-inspect" }, this.empty, this.body, this.live);
      this.node.addEventListener("keydown", (event) => this.key(event));
      // the keys also work where nothing of this view has the focus: after a click beside it, or on its tab
      document.addEventListener("keydown", (event) => {
        const free = event.target === document.body || event.target.matches('[role="tab"][aria-selected="true"]');
        if (free && this.node.isConnected && this.node.offsetParent && !event.defaultPrevented) this.key(event);
      });
      // Space plays; without this a focused token would be clicked as well
      this.node.addEventListener("keyup", (event) => { if (event.key === " " && event.target.closest("[data-k]")) event.preventDefault(); });
      root.append(this.node);
      const asked = new URLSearchParams(location.search);
      this.wanted = asked.has("it") ? { lane: asked.get("lane"), index: Number(asked.get("it")) - 1, token: Number(asked.get("tok") || 0) - 1 } : null;
      window.addEventListener("specviz:pick", (event) => { this.wanted = event.detail; sv.soon(this.draw); });
      channel.views.add(this);
      if (channel.pinned) this.wanted = channel.pinned;
      sv.soon(this.draw);
    }
    get iteration() { return this.lane ? this.lane.its[this.it] : undefined; }
    get last() { return this.lane ? this.lane.its.length - 1 : -1; }

    draw() {
      const { channel } = this;
      const fresh = this.stale || this.generation !== channel.generation;
      if (this.generation !== channel.generation) {
        this.generation = channel.generation;
        this.details.clear();
        Object.assign(this, { lane: null, it: -1, hovered: null, follow: true, playing: false, drawnIt: -1, failed: null });
        this.strip.reset();
      }
      if (!this.lane && channel.lanes.length) this.choose(channel.lanes.find((one) => one.key !== "plain" && one.head && one.head.method !== "plain") || channel.lanes[0], true);
      const wanted = this.wanted && channel.byKey && channel.byKey[this.wanted.lane || (this.lane && this.lane.key)];
      if (wanted && wanted.its.length > this.wanted.index && this.wanted.index >= 0) {
        const { index, token } = this.wanted;
        this.wanted = null;
        if (wanted !== this.lane) this.choose(wanted, true);
        this.follow = false;
        this.move(index, token >= 0 ? token : undefined);
      }
      const some = this.lane && this.lane.its.length > 0;
      this.empty.hidden = Boolean(some);
      this.body.hidden = !some;
      if (!some) sv.text(this.empty, channel.note && channel.note.message ? channel.note.message : sv.t(this.lane ? "inspect.waiting" : "inspect.empty"));
      if (fresh) { this.strip.reset(); this.strip.node.setAttribute("aria-label", sv.t("strip.label")); }
      this.stale = false;
      if (some) {
        this.strip.draw(this.lane);
        if (!this.playing && (this.it < 0 || (this.follow && this.it !== this.last))) this.move(this.follow ? this.last : 0, undefined, true);
        this.show(fresh);
        this.rail.draw(fresh);
      }
      const stats = sv.stats.inspect;
      Object.assign(stats, { rendered: this.strip.boxes.length, lane: this.lane ? this.lane.key : "", index: this.it, token: this.tok, playing: this.playing });
    }
    choose(lane, quiet) {
      this.lane = lane;
      this.strip.reset();
      Object.assign(this, { it: -1, hovered: null, drawnIt: -1, clock: 0 });
      this.follow = !lane.over;
      if (!quiet) { this.pause(); sv.soon(this.draw); }
    }
    // The token that decided the round: the draft that was rejected where the path ends (the first of several), else the one the target drew.
    decisive(it) {
      const shape = sv.shape(it), end = shape.path.length ? shape.path[shape.path.length - 1] : -1;
      const lost = shape.kids.get(end).find((k) => "rR".includes(it.letters[k]));
      return lost === undefined ? it.letters.length - 1 : lost;
    }
    move(it, tok, quiet) {
      const next = Math.max(0, Math.min(this.last, it));
      const count = this.lane.its[next].letters.length;
      this.it = next;
      this.tok = tok === undefined || tok < 0 ? this.decisive(this.lane.its[next]) : Math.min(tok, count - 1);
      if (!this.playing) this.clock = this.lane.its[next].done;
      if (!quiet) sv.soon(this.draw);
    }
    // A choice by the user: it stays, and it is in the address.
    pin(it, tok) {
      this.pause(true);
      this.follow = false;
      this.hovered = null;
      this.move(it, tok);
      clearTimeout(this.address);
      this.address = setTimeout(() => {
        const url = new URL(location.href);
        url.searchParams.set("lane", this.lane.key);
        url.searchParams.set("it", this.it + 1);
        url.searchParams.set("tok", this.tok + 1);
        history.replaceState(history.state, "", url);
      }, 300);
    }
    hover(one) {
      if (this.playing) return;
      clearTimeout(this.hovering);
      this.hovering = setTimeout(() => { this.hovered = one; sv.soon(this.draw); }, one ? 90 : 160);
    }
    key(event) {
      if (event.altKey || event.ctrlKey || event.metaKey || !this.lane || this.last < 0) return;
      const target = event.target;
      if (target.matches("select, input, textarea")) return;
      const onButton = target.matches("button:not([data-k])");
      const step = {
        ArrowLeft: () => this.pin(this.it - 1), ArrowRight: () => this.pin(this.it + 1),
        ArrowUp: () => this.pin(this.it, this.map.next(this.tok, -1)), ArrowDown: () => this.pin(this.it, this.map.next(this.tok, 1)),
        Home: () => this.pin(0), End: () => this.pin(this.last),
        " ": onButton ? null : () => (this.playing ? this.pause() : this.play()),
        Enter: target.matches("[data-k]") ? () => target.click() : null,
      }[event.key];
      if (!step) return;
      event.preventDefault();
      this.focus = this.strip.node.contains(target) ? "strip" : this.round.node.contains(target) ? "round" : this.map.tree.nodes.contains(target) ? "tree" : "";
      step();
    }

    // ---- replay by the recorded times --------------------------------------------------------------------------------
    play() {
      if (!this.lane || this.last < 0) return;
      if (this.it >= this.last) this.clock = 0;
      else this.clock = this.lane.its[this.it].done - this.lane.its[this.it].time;
      Object.assign(this, { playing: true, follow: false, hovered: null });
      let before = performance.now();
      const tick = (now) => {
        if (!this.playing) return;
        this.clock += (Math.max(0, now - before) / 1000) * this.speed;
        before = now;
        const its = this.lane.its;
        let k = Math.max(0, this.it);
        if (its[k].done - its[k].time > this.clock) k = 0;
        while (k < its.length - 1 && its[k].done <= this.clock) k += 1;
        const it = its[k];
        const judged = this.clock >= it.done - it.seconds[4] - it.seconds[3];
        if (k !== this.it || judged !== this.judged) { this.judged = judged; this.move(k); }
        this.rail.tick();
        if (k === its.length - 1 && this.clock >= it.done) return void this.pause();
        requestAnimationFrame(tick);
      };
      requestAnimationFrame(tick);
      sv.soon(this.draw);
    }
    pause(silent) {
      if (!this.playing) return;
      this.playing = false;
      if (this.iteration) this.clock = this.iteration.done;
      if (!silent) sv.text(this.live, this.summary());
      sv.soon(this.draw);
    }
    summary() {
      const it = this.iteration;
      if (!it) return "";
      const accepted = (it.letters.match(/a/g) || []).length;
      return sv.t(this.it === this.last ? "live.end" : "live.pause", { i: this.it + 1, a: accepted, d: sv.shape(it).candidates });
    }

    // ---- drawing the choice ------------------------------------------------------------------------------------------
    show(fresh) {
      const at = this.hovered || { it: this.it, tok: this.tok };
      const preview = at.it !== this.it || at.tok !== this.tok; // the mouse may rest on what was just chosen
      const it = this.lane.its[at.it];
      if (!it) return;
      const detail = this.detail(at.it), failed = this.failed === this.lane.key + "/" + at.it;
      const state = [this.generation, this.lane.key, at.it, at.tok, Boolean(detail), failed, preview, this.playing, this.playing && this.judged, fresh, this.lane.over].join();
      this.strip.mark(this.it, this.tok, this.playing ? this.it : -1, this.focus === "strip");
      if (state === this.shown && !fresh) { this.focus = ""; return; }
      this.shown = state;
      const hidden = this.playing && !this.judged;
      this.arrange(sv.shape(it).tree);
      this.round.draw(this.lane, it, detail, at.tok, hidden, this.focus === "round");
      this.map.draw(this.lane, it, detail, at.tok, hidden, this.focus === "tree");
      this.drafted.draw(this.lane, it, detail, hidden);
      this.focus = "";
      this.card.error = failed ? this.failure : "";
      this.card.show({ letter: hidden ? "u" : it.letters[at.tok], name: it.names[at.tok] || "", it: at.it }, hidden ? null : detail, at.tok, preview, this.lane);
      sv.stats.inspect.shown = [this.lane.key, at.it, at.tok, detail ? "full" : "light"].join("/");
    }
    // A tree takes the whole width, above the card of its chosen node; the chips of a chain have their place beside the laws.
    arrange(wide) {
      if (this.wide === wide) return;
      this.wide = wide;
      if (wide) this.columns.before(this.round.node, this.map.node);
      else {
        this.column.prepend(this.round.node);
        this.columns.after(this.map.node);
      }
    }
    detail(index) {
      const key = this.lane.key + "/" + index;
      if (this.details.has(key)) return this.details.get(key);
      const now = performance.now();
      if (this.asking === key || this.failed === key) return null;
      if (now - this.asked < PAUSE && (this.playing || this.follow || this.asking)) {
        clearTimeout(this.later);
        this.later = setTimeout(() => sv.soon(this.draw), PAUSE);
        return null;
      }
      this.asked = now;
      this.asking = key;
      const generation = this.generation;
      const done = (value, error) => {
        if (this.asking === key) this.asking = null;
        if (generation !== this.generation) return;
        if (value && !value.error) {
          sv.stats.details += 1;
          if (this.details.size >= KEPT) this.details.delete(this.details.keys().next().value);
          this.details.set(key, value);
          this.failed = null; // what failed is asked for again when it is looked at again
        } else {
          this.failed = key;
          this.failure = (value && value.error) || error;
        }
        sv.soon(this.draw);
      };
      if (!this.server || !this.server.iteration_detail) done(null, "gone");
      else this.server.iteration_detail({ run: this.channel.run, lane: this.lane.key, index }).then((value) => done(value), () => done(null, "network"));
      return null;
    }
  }
  Inspect.SPEEDS = SPEEDS;
  sv.views.inspect = Inspect;
})();
