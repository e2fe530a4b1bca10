"use strict";
(() => {
  // --- Data ---------------------------------------------------------------------------------------

  const data = JSON.parse(document.getElementById("data").textContent);
  const $ = (id) => document.getElementById(id);
  const TAU = 2 * Math.PI;

  // Arrays come as little-endian float32 in base64; they are decoded when first looked at.
  const decoded = new Map();
  function numbers(text) {
    if (!decoded.has(text)) {
      const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
      const view = new DataView(bytes.buffer);
      const found = new Float32Array(bytes.length / 4);
      for (let k = 0; k < found.length; k++) found[k] = view.getFloat32(4 * k, true);
      decoded.set(text, found);
    }
    return decoded.get(text);
  }

  const LABELS = {
    angles: "angle of the turn",
    deviation: "angle, from its mean",
    i: "input gate i",
    f: "forget gate f",
    g: "candidate g",
    o: "output gate o",
    r: "reset gate r",
    z: "update gate z",
    n: "candidate n",
    before_rotation: "state before rotation",
    after_rotation: "state after rotation",
    output: "output h",
  };
  const SIGNED = ["deviation", "g", "n", "before_rotation", "after_rotation", "output"];
  const MEMORIES = ["before_rotation", "after_rotation"];

  const state = {
    sequence: 0,
    direction: 0,
    quantity: null,
    order: "layer",
    plane: 0, // a place in the direction's list of planes
    step: 0,
    alike: false,
    playing: false,
    following: false, // another page chose the token
    progress: 1, // of the step's movement, 0 to 1
  };

  const sequence = () => data.sequences[state.sequence];
  const direction = () => data.directions[state.direction];
  const steps = () => sequence().tokens.length;
  const rotates = () => direction().names.includes("angles");
  const hasForgetGate = () => direction().names.includes("f");

  // All that is shown of a direction; a cell without rotation has one state, not two.
  const quantities = () =>
    rotates()
      ? direction().names.flatMap((name) => (name === "angles" ? ["angles", "deviation"] : [name]))
      : direction().names.filter((name) => name !== "before_rotation");
  // An empty token is padding.
  const nameOf = (step) => sequence().tokens[step] || "(pad)";
  const ofPlanes = (name) => name === "angles" || name === "deviation";
  // Pairs have one plane each, larger groups several layers of planes.
  const inPairs = () => direction().size === 2;

  function unitsOf(plane) {
    return direction().planes[plane].columns.map((column) => direction().units[column]);
  }

  function planeName(plane) {
    const { group, layer } = direction().planes[plane];
    return inPairs() ? `pair ${group}` : `group ${group}, layer ${layer} (${unitsOf(plane).join(", ")})`;
  }

  function label(name) {
    if (name === "after_rotation" && !rotates()) return "state";
    if (MEMORIES.includes(name) && !hasForgetGate()) return `reset ${LABELS[name]}`;
    return LABELS[name] || `gate ${name}`;
  }

  function columnsOf(name) {
    if (ofPlanes(name)) return direction().planes;
    return name === "output" ? direction().outputs : direction().units;
  }

  function value(name, step, column, row = state.sequence) {
    if (name === "deviation") return shortWay(angle(step, column, row) - meanAngle(column, row));
    return numbers(direction().rows[row][name])[step * columnsOf(name).length + column];
  }

  const angle = (step, plane = state.plane, row = state.sequence) => value("angles", step, plane, row);
  // The same rotation the short way round: -pi to pi.
  const shortWay = (u) => u - TAU * Math.round(u / TAU);
  const degrees = (u) => (u * 180) / Math.PI;

  // Round the circle, over the tokens of a row; computed once for every plane.
  const meanAngles = new Map();
  function meanAngle(plane, row) {
    const key = [state.direction, row, plane].join();
    if (!meanAngles.has(key)) {
      let [cos, sin] = [0, 0];
      for (let t = 0; t < data.sequences[row].tokens.length; t++) {
        cos += Math.cos(angle(t, plane, row));
        sin += Math.sin(angle(t, plane, row));
      }
      meanAngles.set(key, Math.atan2(sin, cos));
    }
    return meanAngles.get(key);
  }

  // A quantity of the two units of a plane.
  function bothOf(name, step, plane) {
    return direction().planes[plane].columns.map((column) => value(name, step, column));
  }

  function previousMemory(step, plane) {
    const before = direction().reverse ? step + 1 : step - 1;
    if (before >= 0 && before < steps()) return bothOf(direction().carries, before, plane);
    const initial = numbers(direction().rows[state.sequence].initial);
    return direction().planes[plane].columns.map((column) => initial[column]);
  }

  function turned([x, y], w) {
    return [x * Math.cos(w) - y * Math.sin(w), x * Math.sin(w) + y * Math.cos(w)];
  }

  // The two units of a plane just before it turns: after the layers of its group that turn first.
  function afterEarlierLayers(step, plane) {
    const { group, layer, columns } = direction().planes[plane];
    const units = new Map();
    const read = (column) => (units.has(column) ? units.get(column) : value("before_rotation", step, column));
    direction().planes.forEach((other, place) => {
      if (other.group !== group || other.layer >= layer) return;
      const after = turned(other.columns.map(read), angle(step, place));
      other.columns.forEach((column, k) => units.set(column, after[k]));
    });
    return columns.map(read);
  }

  // Where the state of a plane's units goes in one step: straight parts and the turn.
  function movement(step, plane) {
    const was = previousMemory(step, plane);
    const before = bothOf("before_rotation", step, plane);
    const after = bothOf("after_rotation", step, plane);
    const is = bothOf(direction().carries, step, plane);
    let kept = before;
    if (hasForgetGate()) {
      const f = bothOf("f", step, plane);
      kept = [f[0] * was[0], f[1] * was[1]];
    }
    const turn = rotates() ? shortWay(angle(step, plane)) : 0;
    const start = rotates() ? afterEarlierLayers(step, plane) : before;
    return { was, kept, before, start, end: turned(start, turn), after, is, turn };
  }

  // The parts of a movement, one after the other: what happens, from where, to where.
  function partsOf({ was, kept, before, start, end, after, is }) {
    const all = [["others", before, start], ["turn", start, end], ["others", end, after]];
    const rotation = rotates() ? all.filter(([kind]) => kind === "turn" || !inPairs()) : [];
    return hasForgetGate()
      ? [["forget", was, kept], ["write", kept, before], ...rotation]
      : [["forget", was, before], ...rotation, ["write", was, is]];
  }

  // --- Colors ------------------------------------------------------------------------------------

  const dark = () => document.documentElement.dataset.theme === "dark";

  function rgb(lightness, a, b) {
    // From OKLab, in which equal steps look equal.
    const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
    const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
    const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
    const linear = [
      4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
      -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
      -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s,
    ];
    return linear.map((x) => {
      const clipped = Math.min(1, Math.max(0, x));
      const curved = clipped <= 0.0031308 ? 12.92 * clipped : 1.055 * clipped ** (1 / 2.4) - 0.055;
      return Math.round(255 * curved);
    });
  }

  const BLUE = (250 * Math.PI) / 180;
  const ORANGE = (55 * Math.PI) / 180;

  function between(from, to, share) {
    return from + (to - from) * share;
  }

  // Cyclic: no turn is the ground; each way round has its hue, and both end in violet at half a turn.
  function cyclicColor(u) {
    const w = shortWay(u);
    const share = Math.abs(w) / Math.PI;
    const hue = (w >= 0 ? between(235, 310, share ** 1.5) : between(75, -50, share ** 1.5)) * (Math.PI / 180);
    const chroma = share < 0.5 ? 0.14 * Math.sin(Math.PI * share) : between(0.14, 0.1, 2 * share - 1);
    const lightness = dark() ? between(0.27, 0.88, share ** 0.8) : between(0.965, 0.4, share ** 0.8);
    return rgb(lightness, chroma * Math.cos(hue), chroma * Math.sin(hue));
  }

  function signedColor(x) {
    const share = Math.min(1, Math.abs(x));
    const hue = x >= 0 ? BLUE : ORANGE;
    const chroma = 0.14 * share ** 0.8;
    const lightness = dark() ? between(0.27, 0.82, share) : between(0.965, 0.46, share);
    return rgb(lightness, chroma * Math.cos(hue), chroma * Math.sin(hue));
  }

  function shareColor(x) {
    const share = Math.min(1, Math.max(0, x));
    const hue = between(175, 215, share) * (Math.PI / 180);
    const chroma = 0.1 * Math.sin(Math.PI * (0.12 + 0.68 * share));
    const lightness = dark() ? between(0.26, 0.9, share) : between(0.97, 0.36, share);
    return rgb(lightness, chroma * Math.cos(hue), chroma * Math.sin(hue));
  }

  const css = ([r, g, b]) => `rgb(${r}, ${g}, ${b})`;
  const themed = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  function largest(name) {
    let most = 0;
    for (let t = 0; t < steps(); t++) {
      for (let column = 0; column < columnsOf(name).length; column++) most = Math.max(most, Math.abs(value(name, t, column)));
    }
    return most || 1;
  }

  // {color(x), from, to}: how a quantity is colored.
  function scale(name) {
    if (name === "angles") return { color: cyclicColor, from: 0, to: TAU };
    if (SIGNED.includes(name)) {
      const limit = MEMORIES.includes(name) || name === "deviation" ? largest(name) : 1;
      return { color: (x) => signedColor(x / limit), from: -limit, to: limit };
    }
    return { color: shareColor, from: 0, to: 1 };
  }

  // --- Order of the planes ------------------------------------------------------------------------

  function meanTurn(plane) {
    let sum = 0;
    for (let t = 0; t < steps(); t++) sum += Math.abs(shortWay(angle(t, plane)));
    return sum / steps();
  }

  function variation(plane) {
    let [cos, sin, sum, squares] = [0, 0, 0, 0];
    for (let t = 0; t < steps(); t++) {
      if (rotates()) {
        cos += Math.cos(angle(t, plane));
        sin += Math.sin(angle(t, plane));
      } else {
        for (const x of bothOf(direction().carries, t, plane)) {
          sum += x;
          squares += x * x;
        }
      }
    }
    const n = steps();
    return rotates() ? 1 - Math.hypot(cos, sin) / n : squares / (2 * n) - (sum / (2 * n)) ** 2;
  }

  // Places of the planes from top to bottom.
  function orderedPlanes() {
    const places = direction().planes.map((_, place) => place);
    const measure = { turn: meanTurn, vary: variation }[state.order];
    if (!measure) return places;
    const amount = places.map(measure);
    return places.sort((a, b) => amount[b] - amount[a]);
  }

  // Rows of the heat map: {column, planes that it belongs to, name}.
  function mapRows() {
    const name = state.quantity;
    const { planes, groups, size, units } = direction();
    const places = orderedPlanes();
    if (ofPlanes(name)) return places.map((plane) => ({ column: plane, planes: [plane], name: planeName(plane) }));
    const columns = columnsOf(name);
    if (name === "output" && columns.length !== units.length) {
      return columns.map((unit, column) => ({ column, planes: [], name: `output ${unit}` }));
    }
    // Units stay next to their group's; groups come in the order of their planes.
    const ordered = [...new Set(places.map((plane) => planes[plane].group))].map((group) => groups.indexOf(group));
    const grouped = ordered.flatMap((place) => Array.from({ length: size }, (_, k) => place * size + k));
    const leftOver = columns.map((_, column) => column).slice(groups.length * size);
    return [...grouped, ...leftOver].map((column) => ({
      column,
      planes: planes.flatMap((plane, place) => (plane.columns.includes(column) ? [place] : [])),
      name: `unit ${columns[column]}`,
    }));
  }

  // --- Answers ------------------------------------------------------------------------------------

  const MOST_ANSWERS = 5;

  function probability(step, answer) {
    const { answers, probabilities } = sequence();
    return numbers(probabilities)[step * answers.length + answer];
  }

  // Numbers of the answers worth a row: the likeliest at some token, the last and the right one.
  function shownAnswers() {
    const { answers, expected } = sequence();
    if (!answers) return [];
    const peak = answers.map((_, a) => {
      let most = answers[a] === expected ? 2 : 0;
      for (let t = 0; t < steps(); t++) most = Math.max(most, probability(t, a) || 0);
      return most + (probability(steps() - 1, a) || 0);
    });
    const best = answers.map((_, a) => a).sort((a, b) => peak[b] - peak[a]);
    return best.slice(0, MOST_ANSWERS).filter((a, rank) => rank < 2 || peak[a] > 0.3);
  }

  function likeliest(step) {
    let best = 0;
    sequence().answers.forEach((_, a) => {
      if (probability(step, a) > probability(step, best)) best = a;
    });
    return best;
  }

  const percent = (p) => (p > 0 && p < 0.005 ? "< 1 %" : `${Math.round(100 * p)} %`);

  // --- Heat map -----------------------------------------------------------------------------------

  const canvas = $("map");
  const context = canvas.getContext("2d");
  const ANSWER_HEIGHT = 26;
  let box = null; // the geometry of what is drawn, and its rows
  const FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif";

  function layOut() {
    const rows = mapRows();
    const answers = shownAnswers();
    const width = $("scroller").clientWidth;
    context.font = `650 13px ${FONT}`;
    const widest = (texts) => Math.max(0, ...texts.map((t) => context.measureText(t).width));
    const answerNames = answers.map((a) => answerName(a));
    const left = Math.ceil(Math.max(widest(rows.map((r) => r.name)), Math.min(98, widest(answerNames))) + 12);
    const column = Math.min(30, Math.max(11, Math.floor((width - left) / steps())));
    const top = Math.ceil(Math.min(96, widest(sequence().tokens) + 14));
    const row = Math.min(20, Math.max(3, Math.floor((rows.length > 30 ? 520 : 430) / rows.length)));
    const answersTop = top + row * rows.length + 30;
    const height = answers.length ? answersTop + answers.length * (ANSWER_HEIGHT + 4) : top + row * rows.length + 2;
    box = { rows, answers, width, height, left, top, column, row, answersTop };
    const ratio = window.devicePixelRatio || 1;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
    $("spacer").style.width = `${Math.max(width, left + column * steps())}px`;
    // For callers that point at a cell from outside.
    Object.assign(canvas.dataset, { left, top, column, row });
  }

  function answerName(a) {
    const word = sequence().answers[a];
    return word === sequence().expected ? `${word} ✓` : word;
  }

  function clipText(text, room) {
    if (context.measureText(text).width <= room) return text;
    let cut = text;
    while (cut.length > 1 && context.measureText(`${cut}…`).width > room) cut = cut.slice(0, -1);
    return `${cut}…`;
  }

  function drawMap() {
    const ratio = window.devicePixelRatio || 1;
    const { rows, answers, width, height, left, top, column, row, answersTop } = box;
    const scrolled = $("scroller").scrollLeft;
    const at = (step) => left + step * column - scrolled;
    const firstStep = Math.max(0, Math.floor(scrolled / column));
    const endStep = Math.min(steps(), Math.ceil((scrolled + width - left) / column));
    const [ink, soft, card, mark, faint, found] = ["--ink", "--soft", "--card", "--mark", "--faint", "--found"].map(themed);
    const shade = themed("--shade");
    const alike = new Set(state.alike ? alikeHere() : []);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.fillStyle = card;
    context.fillRect(0, 0, width, height);

    context.save();
    context.beginPath();
    context.rect(left, 0, width - left, height);
    context.clip();
    const { color } = scale(state.quantity);
    const gap = column > 6 && row > 6 ? 1 : 0;
    for (let t = firstStep; t < endStep; t++) {
      rows.forEach((r, k) => {
        context.fillStyle = css(color(value(state.quantity, t, r.column)));
        context.fillRect(at(t), top + k * row, column - gap, row - gap);
      });
    }
    // Tokens, upright, shaded by how much they mattered.
    const size = Math.min(13, Math.max(10, column - 1));
    context.textBaseline = "middle";
    for (let t = firstStep; t < endStep; t++) {
      const strength = mattered(t);
      if (strength > 0) {
        context.fillStyle = `rgba(${shade}, ${(0.75 * strength).toFixed(3)})`;
        context.fillRect(at(t), 0, column - gap, top - 4);
      }
      context.save();
      context.translate(at(t) + (column - gap) / 2, top - 9);
      context.rotate(-Math.PI / 2);
      context.font = `${t === state.step ? "650 " : ""}${size}px ${FONT}`;
      context.fillStyle = ink;
      context.fillText(clipText(nameOf(t), top - 14), 0, 0.5);
      context.restore();
      if (alike.has(t)) {
        context.fillStyle = found;
        context.fillRect(at(t), top - 5, column - gap, 4);
      }
    }
    answers.forEach((a, k) => {
      const bottom = answersTop + k * (ANSWER_HEIGHT + 4) + ANSWER_HEIGHT;
      context.fillStyle = faint;
      context.fillRect(left, bottom - ANSWER_HEIGHT, Math.min(width, at(steps())) - left - gap, ANSWER_HEIGHT);
      for (let t = firstStep; t < endStep; t++) {
        const p = probability(t, a) || 0;
        context.fillStyle = likeliest(t) === a ? themed("--accent") : soft;
        context.globalAlpha = likeliest(t) === a ? 1 : 0.55;
        context.fillRect(at(t), bottom - p * ANSWER_HEIGHT, column - gap, p * ANSWER_HEIGHT);
      }
      context.globalAlpha = 1;
    });
    // The chosen token and plane.
    context.strokeStyle = mark;
    context.lineWidth = 2;
    context.strokeRect(at(state.step) - 0.5, 1, column + 1 - gap, height - 2);
    const chosen = rows.map((r, k) => (r.planes.includes(state.plane) ? k : -1)).filter((k) => k >= 0);
    if (chosen.length) {
      context.strokeRect(left + 1, top + chosen[0] * row - 0.5, Math.min(width, at(steps())) - left - 2, chosen.length * row + 1 - gap);
    }
    context.restore();

    // Names at the left, thinned out where rows are low.
    context.textAlign = "right";
    context.textBaseline = "middle";
    const every = Math.ceil(12 / row);
    rows.forEach((r, k) => {
      const isChosen = chosen.includes(k);
      const nearChosen = chosen.length && Math.abs(k - chosen[0]) * row < 11;
      if (!(chosen[0] === k || (k % every === 0 && (row >= 11 || !nearChosen)))) return;
      context.font = `${isChosen ? "650 " : ""}${Math.min(12, Math.max(10, row))}px ${FONT}`;
      context.fillStyle = isChosen ? ink : soft;
      context.fillText(r.name, left - 7, top + k * row + row / 2);
    });
    if (answers.length) {
      context.font = `12px ${FONT}`;
      answers.forEach((a, k) => {
        context.fillStyle = ink;
        context.fillText(clipText(answerName(a), left - 10), left - 7, answersTop + k * (ANSWER_HEIGHT + 4) + ANSWER_HEIGHT / 2 + 3);
      });
      context.textAlign = "left";
      context.fillStyle = soft;
      context.font = `650 12px ${FONT}`;
      context.fillText("Answer if the story ended here", left, answersTop - 13);
    }
    context.textAlign = "left";
  }

  function cellAt(event) {
    const bounds = canvas.getBoundingClientRect();
    const x = event.clientX - bounds.left;
    const y = event.clientY - bounds.top;
    const step = Math.floor((x - box.left + $("scroller").scrollLeft) / box.column);
    if (x < box.left || step < 0 || step >= steps()) return null;
    const row = Math.floor((y - box.top) / box.row);
    const answer = Math.floor((y - box.answersTop) / (ANSWER_HEIGHT + 4));
    if (row >= 0 && row < box.rows.length) return { step, row };
    if (answer >= 0 && answer < box.answers.length) return { step, answer };
    return { step };
  }

  function formatted(name, x) {
    if (name === "deviation") return signedDegrees(x);
    if (name !== "angles") return x.toFixed(4);
    return `${x.toFixed(4)} rad, ${signedDegrees(shortWay(x))}`;
  }

  function signedDegrees(w) {
    return `${w < 0 ? "−" : "+"}${Math.abs(degrees(w)).toFixed(1)}°`;
  }

  function tipFor(cell) {
    const word = `<b>${escaped(sequence().tokens[cell.step] || "padding")}</b> (token ${sequence().first + cell.step})`;
    if (cell.row !== undefined) {
      const row = box.rows[cell.row];
      const x = value(state.quantity, cell.step, row.column);
      return `${word}<br>${row.name}, ${label(state.quantity)}:<br><b>${formatted(state.quantity, x)}</b>`;
    }
    if (cell.answer !== undefined) {
      const a = box.answers[cell.answer];
      const p = probability(cell.step, a);
      const name = escaped(sequence().answers[a]);
      return `${word}<br>if the story ended here, “${name}”: <b>${(100 * p).toFixed(1)} %</b>`;
    }
    const strength = sequence().saliency ? numbers(sequence().saliency)[cell.step] : null;
    return strength === null ? word : `${word}<br>gradient of the answer: <b>${strength.toPrecision(3)}</b>`;
  }

  function escaped(text) {
    const holder = document.createElement("span");
    holder.textContent = text;
    return holder.innerHTML;
  }

  function showTip(event) {
    const cell = cellAt(event);
    const tip = $("tip");
    tip.hidden = !cell;
    if (!cell) return;
    tip.innerHTML = tipFor(cell);
    const room = document.documentElement;
    tip.style.left = `${Math.min(event.clientX + 14, room.clientWidth - tip.offsetWidth - 6)}px`;
    const above = event.clientY + 18 + tip.offsetHeight > room.clientHeight;
    tip.style.top = `${above ? event.clientY - tip.offsetHeight - 10 : event.clientY + 18}px`;
  }

  function drawLegend() {
    const name = state.quantity;
    const { color, from, to } = scale(name);
    if (name === "angles") {
      const ring = [];
      const count = 72;
      for (let k = 0; k < count; k++) {
        const [a, b] = [(k * TAU) / count, ((k + 1.15) * TAU) / count];
        const point = (u, r) => `${(r * Math.cos(u)).toFixed(2)} ${(-r * Math.sin(u)).toFixed(2)}`;
        ring.push(
          `<path fill="${css(color((a + b) / 2))}" d="M${point(a, 17)}A17 17 0 0 0 ${point(b, 17)}L${point(b, 27)}A27 27 0 0 1 ${point(a, 27)}z"/>`,
        );
      }
      $("legend").innerHTML =
        `<svg width="210" height="60" viewBox="-105 -30 210 60">${ring.join("")}` +
        `<text x="32" y="4">0, no turn</text><text x="-32" y="4" text-anchor="end">π, half a turn</text>` +
        `<path d="M9 2 A9 9 0 0 0 -2 -9" fill="none" stroke="currentColor"/><path d="M-2 -12l-4 3.5 5 2z"/></svg>`;
      return;
    }
    const stops = [];
    for (let k = 0; k <= 24; k++) stops.push(css(color(from + ((to - from) * k) / 24)));
    const bars = stops.map((c, k) => `<rect x="${k * 6}" y="0" width="6.4" height="12" fill="${c}"/>`).join("");
    const plain = (x) => (Number.isInteger(x) ? String(x) : x.toFixed(2)).replace("-", "−");
    const text = (x) => (name === "deviation" ? `${degrees(x).toFixed(0).replace("-", "−")}°` : plain(x));
    $("legend").innerHTML =
      `<svg width="210" height="30" viewBox="-30 0 210 30">${bars}` +
      `<text x="0" y="26" text-anchor="middle">${text(from)}</text><text x="75" y="26" text-anchor="middle">${text((from + to) / 2)}</text>` +
      `<text x="150" y="26" text-anchor="middle">${text(to)}</text></svg>`;
  }

  // --- Tokens that turn alike ---------------------------------------------------------------------

  function distance(u, v) {
    return Math.abs(shortWay(u - v));
  }

  const tolerance = () => (Math.min(180, Math.max(0, Number($("within").value) || 0)) * Math.PI) / 180;

  // Steps of a sequence at which the chosen plane turns as it does now.
  function alikeHere(row = state.sequence) {
    if (!rotates()) return [];
    const wanted = angle(state.step);
    const found = [];
    for (let t = 0; t < data.sequences[row].tokens.length; t++) {
      const isItself = row === state.sequence && t === state.step;
      if (!isItself && distance(angle(t, state.plane, row), wanted) <= tolerance()) found.push(t);
    }
    return found;
  }

  const MOST_ALIKE = 60;

  function showAlike() {
    $("alike").setAttribute("aria-pressed", String(state.alike));
    $("alike-list").replaceChildren();
    $("alike-count").textContent = "";
    if (!state.alike) return;
    const wanted = angle(state.step);
    const found = data.sequences.flatMap((_, row) => alikeHere(row).map((step) => ({ row, step })));
    found.sort((a, b) => distance(angle(a.step, state.plane, a.row), wanted) - distance(angle(b.step, state.plane, b.row), wanted));
    const more = found.length > MOST_ALIKE ? `, the nearest ${MOST_ALIKE} listed` : "";
    $("alike-count").textContent = found.length
      ? `${found.length} of ${data.sequences.reduce((sum, s) => sum + s.tokens.length, -1)} other tokens${more}:`
      : "No other token.";
    for (const { row, step } of found.slice(0, MOST_ALIKE)) {
      const words = data.sequences[row].tokens;
      const button = document.createElement("button");
      button.type = "button";
      const context = document.createElement("span");
      const word = document.createElement("b");
      word.textContent = words[step];
      context.append(`${step > 2 ? "… " : ""}${words.slice(Math.max(0, step - 2), step).join(" ")} `, word, ` ${words.slice(step + 1, step + 3).join(" ")}`);
      const size = document.createElement("span");
      size.className = "angle";
      size.textContent = `${row === state.sequence ? "" : `row ${data.sequences[row].row}, `}${signedDegrees(shortWay(angle(step, state.plane, row)))}`;
      button.append(context, size);
      button.addEventListener("click", () => {
        if (row !== state.sequence) chooseSequence(row);
        goTo(step);
      });
      const item = document.createElement("li");
      item.append(button);
      $("alike-list").append(item);
    }
  }

  // --- The chosen plane ---------------------------------------------------------------------------

  const MIDDLE = 200;
  const REACH = 168; // pixels from the middle to the outermost circle
  let radius = 1; // the value of the outermost circle

  function niceCeiling(x) {
    const power = 10 ** Math.floor(Math.log10(x || 1));
    return [1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10].map((m) => m * power).find((m) => m >= x * 0.999);
  }

  function measurePlane() {
    let most = 1e-6;
    for (let t = 0; t < steps(); t++) {
      const { was, before, start, after, is } = movement(t, state.plane);
      for (const [x, y] of [was, before, start, after, is]) most = Math.max(most, Math.hypot(x, y));
    }
    radius = niceCeiling(most);
  }

  const screen = ([x, y]) => [MIDDLE + (x / radius) * REACH, MIDDLE - (y / radius) * REACH];
  const written = (point) => screen(point).map((x) => x.toFixed(2)).join(" ");

  function arc(from, w) {
    const r = ((Math.hypot(...from) / radius) * REACH).toFixed(2);
    return `A${r} ${r} 0 0 ${w > 0 ? 0 : 1} ${written(turned(from, w))}`;
  }

  const along = (from, to, share) => [between(from[0], to[0], share), between(from[1], to[1], share)];

  function trailPath(step) {
    const move = movement(step, state.plane);
    if (!hasForgetGate()) return `M${written(move.was)}L${written(move.is)}`;
    const lines = partsOf(move).map(([kind, from, to]) => (kind === "turn" ? arc(from, move.turn) : `L${written(to)}`));
    return `M${written(move.was)}${lines.join("")}`;
  }

  const stepOrder = () => (direction().reverse ? -1 : 1);

  function drawPlane() {
    const parts = [];
    for (const share of [0.25, 0.5, 0.75, 1]) {
      parts.push(`<circle class="grid" cx="${MIDDLE}" cy="${MIDDLE}" r="${REACH * share}"/>`);
    }
    const tick = (x) => Number(x.toPrecision(3));
    const names = unitsOf(state.plane);
    parts.push(
      `<path class="axis" d="M${MIDDLE - REACH - 10} ${MIDDLE}H${MIDDLE + REACH + 10}M${MIDDLE} ${MIDDLE - REACH - 10}V${MIDDLE + REACH + 10}"/>`,
      `<text x="${MIDDLE + REACH + 12}" y="${MIDDLE - 6}" text-anchor="end">unit ${names[0]} →</text>`,
      `<text x="${MIDDLE + 7}" y="${MIDDLE - REACH - 14}">unit ${names[1]} ↑</text>`,
      `<text x="${MIDDLE + REACH / 2 + 3}" y="${MIDDLE + 13}">${tick(radius / 2)}</text>`,
      `<text x="${MIDDLE + REACH + 3}" y="${MIDDLE + 13}">${tick(radius)}</text>`,
    );

    // Where it came from, the paler the longer ago.
    const past = [];
    const reach = $("whole").checked ? steps() : 6;
    for (let back = 1; back <= reach; back++) {
      const t = state.step - back * stepOrder();
      if (t < 0 || t >= steps()) break;
      past.push(t);
    }
    past.reverse().forEach((t, k) => {
      const opacity = (0.15 + (0.5 * (k + 1)) / past.length).toFixed(2);
      const [x, y] = screen(movement(t, state.plane).is);
      parts.push(`<path class="trail" opacity="${opacity}" d="${trailPath(t)}"/>`);
      parts.push(`<circle class="past" opacity="${opacity}" cx="${x.toFixed(2)}" cy="${y.toFixed(2)}" r="2.6"/>`);
    });

    const move = movement(state.step, state.plane);
    const movements = partsOf(move);
    let dot = move.was;
    let seen = null; // of a GRU: what the candidate sees
    movements.forEach(([kind, from, to], k) => {
      const share = Math.min(1, Math.max(0, movements.length * state.progress - k));
      if (share === 0 && k > 0) return;
      let place = along(from, to, share);
      if (kind === "turn") {
        const w = move.turn * share;
        place = turned(from, w);
        parts.push(`<path class="wedge" d="M${written([0, 0])}L${written(from)}${arc(from, w)}z"/>`);
        parts.push(`<path class="turn" d="M${written(from)}${arc(from, w)}"/>`);
      } else {
        parts.push(`<path class="${kind}" d="M${written(from)}L${written(place)}"/>`);
      }
      if (hasForgetGate() || kind === "write") dot = place;
      else if (kind !== "forget") seen = place;
    });
    if (seen) {
      const [x, y] = screen(seen);
      parts.push(`<circle class="was" cx="${x.toFixed(2)}" cy="${y.toFixed(2)}" r="3.5"/>`);
    }
    const [wasX, wasY] = screen(move.was);
    const [x, y] = screen(dot);
    const right = x > MIDDLE + 90;
    parts.push(
      `<circle class="was" cx="${wasX.toFixed(2)}" cy="${wasY.toFixed(2)}" r="5"/>`,
      `<circle class="is" id="dot" cx="${x.toFixed(2)}" cy="${y.toFixed(2)}" r="6.5"/>`,
      `<text class="word-label" x="${(x + (right ? -11 : 11)).toFixed(1)}" y="${(y - 9).toFixed(1)}" text-anchor="${right ? "end" : "start"}">${escaped(nameOf(state.step))}</text>`,
    );
    $("plane").style.setProperty("--turn", turnColor(move.turn));
    $("plane").innerHTML = parts.join("");
  }

  // As in the heat map, but never so pale that a line of it could not be seen.
  function turnColor(w) {
    const least = 0.35 * Math.PI;
    const size = Math.min(0.8 * Math.PI, Math.max(least, Math.abs(w)));
    return css(cyclicColor(w < 0 ? -size : size));
  }

  function drawPlaneLegend() {
    const sample = (kind, path) => `<svg viewBox="0 0 26 12" aria-hidden="true"><path class="${kind}" d="${path}"/></svg>`;
    const styles = { forget: "stroke: var(--forget); stroke-dasharray: 1 5", write: "stroke: var(--write)", turn: "stroke: var(--accent); stroke-width: 4", others: "stroke: var(--soft); stroke-dasharray: 5 4" };
    const entry = (kind, path, text) =>
      `<li>${sample(kind, path).replace("<path", `<path style="fill: none; stroke-width: 2.5; stroke-linecap: round; ${styles[kind]}"`)} ${text}</li>`;
    const entries = hasForgetGate()
      ? [entry("forget", "M3 6H23", "forgotten"), entry("write", "M3 6H23", "written")]
      : [entry("forget", "M3 6H23", "reset"), entry("write", "M3 6H23", "updated")];
    if (rotates()) entries.splice(hasForgetGate() ? 2 : 1, 0, entry("turn", "M3 9A12 12 0 0 1 23 9", "turned"));
    if (rotates() && !inPairs()) entries.push(entry("others", "M3 6H23", "turned in other planes"));
    $("plane-legend").innerHTML = `<li>○ before</li>${entries.join("")}<li>● after</li>`;
  }

  // --- Numbers of the chosen plane and token ------------------------------------------------------

  function showNumbers() {
    const plane = state.plane;
    const { group, layer } = direction().planes[plane];
    const units = unitsOf(plane);
    const move = movement(state.step, plane);
    const title = inPairs() ? `Pair ${group}` : `Group ${group}, layer ${layer}`;
    $("plane-title").textContent = `${title}: units ${units[0]} and ${units[1]}`;
    const amount = (x, y) => Math.hypot(x, y).toFixed(2);
    const word = sequence().tokens[state.step] || "padding";
    const started = `from length ${amount(...move.was)}`;
    const did = [];
    if (hasForgetGate()) {
      did.push(`keeps ${amount(...move.kept)}`, `writes ${amount(move.before[0] - move.kept[0], move.before[1] - move.kept[1])}`);
      if (rotates()) did.push(`turns ${signedDegrees(move.turn)}`);
    } else {
      did.push(`resets to ${amount(...move.before)}`);
      if (rotates()) did.push(`turns that ${signedDegrees(move.turn)}`);
      did.push(`updates by ${amount(move.is[0] - move.was[0], move.is[1] - move.was[1])}`);
    }
    $("sentence").innerHTML = `At <strong>${escaped(word)}</strong> the ${inPairs() ? "pair" : "plane"}, ${started}, ${did.join(", ")}.`;

    const rows = [];
    if (rotates()) {
      const u = angle(state.step);
      rows.push(`<tr><th scope="row">angle</th><td data-name="angles" colspan="2">${u.toFixed(4)} rad = ${degrees(u).toFixed(1)}°</td></tr>`);
    }
    const line = (name, text, values) =>
      `<tr><th scope="row">${text}</th>${values.map((x) => `<td data-name="${name}">${x.toFixed(4)}</td>`).join("")}</tr>`;
    if (rotates() && !inPairs()) {
      rows.push(line("start", "state before this turn", move.start), line("end", "state after this turn", move.end));
    }
    rows.push(line("previous", "state before the step", move.was));
    for (const name of quantities()) {
      if (ofPlanes(name)) continue;
      if (name === "output" && direction().outputs.length !== direction().units.length) continue;
      rows.push(line(name, label(name), bothOf(name, state.step, plane)));
    }
    $("numbers").tHead.innerHTML = `<tr><th></th><th scope="col">unit ${units[0]}</th><th scope="col">unit ${units[1]}</th></tr>`;
    $("numbers").tBodies[0].innerHTML = rows.join("");
    const what = rotates() ? `turns ${signedDegrees(move.turn)}` : `state ${move.is.map((x) => x.toFixed(2)).join(", ")}`;
    const answer = sequence().answers ? `; answer if the story ended here: ${sequence().answers[likeliest(state.step)]}` : "";
    if (!state.playing) $("spoken").textContent = `Token ${state.step + 1} of ${steps()}, ${word}; ${planeName(plane)} ${what}${answer}`;
  }

  // --- Story --------------------------------------------------------------------------------------

  // How much a token mattered, 0 to 1.
  function mattered(step) {
    if (!sequence().saliency) return 0;
    const all = numbers(sequence().saliency);
    let most = 0;
    for (const x of all) if (x > most) most = x;
    return most > 0 ? (all[step] || 0) / most : 0;
  }

  function shadeStyle(strength) {
    return strength > 0 ? `background: rgba(${themed("--shade")}, ${(0.75 * strength).toFixed(3)})` : "";
  }

  function buildStory() {
    const { tokens, question, expected, answers } = sequence();
    $("story-title").textContent = question ? "Story" : "Tokens";
    $("shading").hidden = !sequence().saliency;
    const words = tokens.map((token, t) => {
      const word = document.createElement("span");
      word.className = "word";
      word.id = `token-${t}`;
      word.setAttribute("role", "option");
      word.textContent = token || "(pad)";
      word.classList.toggle("padding", token === "");
      word.style.cssText = shadeStyle(mattered(t));
      word.addEventListener("click", () => goTo(t));
      return word;
    });
    const story = $("story");
    story.replaceChildren();
    words.forEach((word, t) => {
      story.append(word, /^[.?!]$/.test(tokens[t + 1] || "") ? "" : " ");
      if (/^[.?!]$/.test(tokens[t])) {
        const space = document.createElement("span");
        space.className = "sentence-end";
        space.setAttribute("aria-hidden", "true");
        story.append(space);
      }
    });
    const asked = $("asked");
    asked.hidden = !answers;
    if (!answers) return;
    const shades = sequence().questionSaliency ? numbers(sequence().questionSaliency) : null;
    const most = shades ? Math.max(...shades) : 0;
    const text = (question || [])
      .map((word, k) => `<span class="word" style="cursor: auto; ${most > 0 ? shadeStyle(shades[k] / most) : ""}">${escaped(word)}</span>`)
      .join(" ");
    const last = steps() - 1;
    const best = likeliest(last);
    const right = expected === null ? "" : answers[best] === expected ? ", which is right" : `; right is <strong>${escaped(expected)}</strong>`;
    asked.innerHTML =
      (text ? `<span class="label">Question</span> ${text}` : "") +
      ` <span class="verdict"><span class="label">Answer</span> <strong>${escaped(answers[best])}</strong> (${percent(probability(last, best))})${right}</span>` +
      ` <span class="verdict" id="so-far"></span>`;
  }

  function markStory() {
    const story = $("story");
    const alike = new Set(state.alike ? alikeHere() : []);
    for (const word of story.querySelectorAll(".word")) {
      const t = Number(word.id.slice(6));
      word.classList.toggle("now", t === state.step);
      word.classList.toggle("alike", alike.has(t));
      word.setAttribute("aria-selected", String(t === state.step));
    }
    story.setAttribute("aria-activedescendant", `token-${state.step}`);
    const now = $(`token-${state.step}`);
    const out = now.offsetTop - story.offsetTop;
    if (out < story.scrollTop || out + now.offsetHeight > story.scrollTop + story.clientHeight) {
      story.scrollTop = out - story.clientHeight / 2;
    }
    const soFar = $("so-far");
    if (soFar) {
      const best = likeliest(state.step);
      soFar.hidden = sequence().tokens[state.step] === "";
      soFar.innerHTML = `<span class="label">If it ended at “${escaped(sequence().tokens[state.step])}”</span> <strong>${escaped(sequence().answers[best])}</strong> (${percent(probability(state.step, best))})`;
    }
  }

  // --- Going from token to token ------------------------------------------------------------------

  function scrollToStep() {
    const scroller = $("scroller");
    const start = state.step * box.column;
    const room = scroller.clientWidth - box.left;
    if (start < scroller.scrollLeft) scroller.scrollLeft = start - room / 4;
    else if (start + box.column > scroller.scrollLeft + room) scroller.scrollLeft = start - (3 * room) / 4;
  }

  function goTo(step, progress = 1) {
    state.step = Math.min(steps() - 1, Math.max(0, step));
    state.progress = progress;
    $("slider").value = state.step;
    if (window.parent !== window && !state.following) window.parent.postMessage({ fromLast: steps() - 1 - state.step }, "*");
    $("slider").setAttribute("aria-valuetext", `${sequence().tokens[state.step]}, ${state.step + 1} of ${steps()}`);
    showAlike();
    markStory();
    scrollToStep();
    drawMap();
    drawPlane();
    showNumbers();
  }

  function choosePlane(place) {
    state.plane = place;
    measurePlane();
    goTo(state.step);
  }

  function movePlane(by) {
    const order = orderedPlanes();
    const next = order.indexOf(state.plane) + by;
    if (next >= 0 && next < order.length) choosePlane(order[next]);
  }

  const calm = window.matchMedia("(prefers-reduced-motion: reduce)");
  let began = null;

  function play(on) {
    const last = direction().reverse ? 0 : steps() - 1;
    const first = steps() - 1 - last;
    if (on && state.step === last) goTo(first, 0);
    state.playing = on;
    began = null;
    $("play").setAttribute("aria-label", on ? "Pause" : "Play");
    $("play-icon").setAttribute("d", on ? "M3 2h4v12H3zM9 2h4v12H9z" : "M4 2v12l9-6z");
    if (on) requestAnimationFrame(frame);
    else goTo(state.step);
  }

  function frame(now) {
    if (!state.playing) return;
    if (began === null) began = now;
    const duration = Number($("speed").value);
    const progress = Math.min(1, (now - began) / (0.85 * duration));
    if (now - began >= duration) {
      const last = direction().reverse ? 0 : steps() - 1;
      if (state.step === last) {
        play(false);
        return;
      }
      began = now;
      goTo(state.step + stepOrder(), calm.matches ? 1 : 0);
    } else if (!calm.matches && progress !== state.progress) {
      state.progress = progress;
      drawPlane();
    }
    requestAnimationFrame(frame);
  }

  // --- Files ---------------------------------------------------------------------------------------

  function download(blob, name) {
    const link = document.createElement("a");
    const address = URL.createObjectURL(blob);
    Object.assign(link, { href: address, download: name });
    link.click();
    setTimeout(() => URL.revokeObjectURL(address), 1000);
  }

  const fileName = (end) => `${data.cell}-${direction().name}-row${sequence().row}-${state.quantity}.${end}`;

  // What the heat map shows, a line per token.
  function asCsv() {
    const cell = (x) => (/[",\n]/.test(x) ? `"${x.replaceAll('"', '""')}"` : x);
    const rows = mapRows();
    const lines = [["step", "token", ...rows.map((r) => r.name)]];
    for (let t = 0; t < steps(); t++) {
      lines.push([String(sequence().first + t), sequence().tokens[t], ...rows.map((r) => String(value(state.quantity, t, r.column)))]);
    }
    return `${lines.map((line) => line.map(cell).join(",")).join("\n")}\n`;
  }

  // The whole heat map, also the part that is scrolled away.
  function asSvg() {
    const rows = mapRows();
    const { color } = scale(state.quantity);
    const left = Math.max(90, 7 * Math.max(...rows.map((r) => r.name.length)));
    const [size, top] = [16, 90];
    const parts = [];
    for (let t = 0; t < steps(); t++) {
      const x = left + t * size;
      parts.push(`<text transform="translate(${x + 12} ${top - 6}) rotate(-90)">${escaped(nameOf(t))}</text>`);
      rows.forEach((r, k) => {
        const fill = css(color(value(state.quantity, t, r.column)));
        parts.push(`<rect x="${x}" y="${top + k * size}" width="${size - 1}" height="${size - 1}" fill="${fill}"/>`);
      });
    }
    rows.forEach((r, k) => parts.push(`<text x="${left - 6}" y="${top + k * size + 12}" text-anchor="end">${r.name}</text>`));
    const [width, height] = [left + steps() * size + 10, top + rows.length * size + 30];
    parts.push(`<text x="${left}" y="${height - 8}">${escaped(data.cell)}, ${label(state.quantity)}</text>`);
    return (
      `<svg xmlns="${$("plane").namespaceURI}" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" ` +
      `font-family="sans-serif" font-size="11"><rect width="100%" height="100%" fill="${themed("--card")}"/>` +
      `<g fill="${themed("--ink")}">${parts.join("")}</g></svg>`
    );
  }

  const SAVES = {
    "save-csv": () => download(new Blob([asCsv()], { type: "text/csv" }), fileName("csv")),
    "save-svg": () => download(new Blob([asSvg()], { type: "image/svg+xml" }), fileName("svg")),
    "save-png": () => canvas.toBlob((blob) => download(blob, fileName("png"))),
  };

  // --- Choices ------------------------------------------------------------------------------------

  function fill(select, entries, chosen) {
    select.replaceChildren(...entries.map(([key, text]) => new Option(text, key, key === chosen, key === chosen)));
  }

  function refreshAll() {
    buildStory();
    layOut();
    measurePlane();
    drawLegend();
    drawPlaneLegend();
    $("slider").max = steps() - 1;
    goTo(state.step);
  }

  function chooseSequence(row) {
    state.sequence = row;
    $("sequence").value = String(row);
    state.step = firstLook();
    refreshAll();
  }

  function chooseDirection(place) {
    state.direction = place;
    const order = [["layer", "as in the layer"]];
    if (rotates()) order.push(["turn", "most turning first"]);
    order.push(["vary", "most varying first"]);
    if (!order.some(([key]) => key === state.order)) state.order = "layer";
    if (!quantities().includes(state.quantity)) state.quantity = rotates() ? "deviation" : "after_rotation";
    const varied = direction().planes.map((_, plane) => variation(plane));
    state.plane = varied.indexOf(Math.max(...varied));
    $("map-title").textContent = inPairs() ? "All pairs" : "All planes";
    fill($("quantity"), quantities().map((name) => [name, label(name)]), state.quantity);
    fill($("order"), order, state.order);
    $("alike-part").hidden = !rotates();
    state.alike = state.alike && rotates();
    $("explanation").innerHTML = explanation();
    $("alternating").hidden = !(rotates() && data.sequences.some((s) => s.answers));
    refreshAll();
  }

  function explanation() {
    const cell = !inPairs()
      ? `The cell keeps its state in groups of ${direction().size} units. At every token, layers of rotations turn each group, one layer after the other: even layers turn units (0, 1), (2, 3) and so on of the group, odd layers (1, 2), (3, 4) and so on. Each plane has an angle that the cell computes from the token and its last output.`
      : rotates()
      ? "The cell keeps its state in pairs of units and rotates each pair, at every token, by an angle it computes from the token and its last output."
      : "This cell does not rotate; pairs are shown for comparison.";
    const way = hasForgetGate()
      ? "In the plane, a step goes from the hollow dot along the dotted line (what the forget gate takes away), along the straight line (what is written), then along the arc (the turn) to the full dot."
      : "In the plane, a step goes from the hollow dot along the dotted line (the reset) and along the arc (the turn) to what the candidate sees, the small dot; the new state is the full dot.";
    const others = "The dashed lines are the turns of the group's other planes, of earlier layers before the arc and of later ones after it.";
    const colors = "Angles have a cyclic scale: the color of the ground means no turn, blue a turn counterclockwise, orange clockwise, violet half a turn; an angle u and u − 2π are the same turn, and arcs are drawn the short way.";
    const order = "Turning means the mean angle to the nearest whole turn; varying, how much the angle differs from token to token.";
    return [cell, way, ...(inPairs() ? [] : [others]), ...(rotates() ? [colors, order] : [])].map((text) => `<p>${text}</p>`).join("");
  }

  function useTheme(theme) {
    document.documentElement.dataset.theme = theme;
    $("theme").textContent = theme === "dark" ? "Light" : "Dark";
    $("theme").setAttribute("aria-label", `Use ${theme === "dark" ? "light" : "dark"} colors`);
    if (box) {
      drawLegend();
      buildStory();
      goTo(state.step);
    }
  }

  const KEYS = {
    ArrowLeft: () => goTo(state.step - 1),
    ArrowRight: () => goTo(state.step + 1),
    ArrowUp: () => movePlane(-1),
    ArrowDown: () => movePlane(1),
    Home: () => goTo(0),
    End: () => goTo(steps() - 1),
    " ": () => play(!state.playing),
    f: () => rotates() && $("alike").click(),
  };

  function onKey(event) {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    const target = event.target;
    if (target.matches("select, input[type=number]")) return;
    if (event.key === " " && target.matches("button, summary, input")) return;
    if (target.id === "slider" && event.key.startsWith("Arrow")) return; // it moves by itself
    const act = KEYS[event.key] || KEYS[event.key.toLowerCase()];
    if (!act) return;
    event.preventDefault();
    if (state.playing && event.key !== " ") play(false);
    act();
  }

  function listen() {
    document.addEventListener("keydown", onKey);
    $("sequence").addEventListener("change", (e) => chooseSequence(Number(e.target.value)));
    $("direction").addEventListener("change", (e) => chooseDirection(Number(e.target.value)));
    $("quantity").addEventListener("change", (e) => {
      state.quantity = e.target.value;
      layOut();
      drawLegend();
      drawMap();
    });
    $("order").addEventListener("change", (e) => {
      state.order = e.target.value;
      state.plane = state.order === "layer" ? state.plane : orderedPlanes()[0];
      layOut();
      choosePlane(state.plane);
    });
    $("theme").addEventListener("click", () => useTheme(dark() ? "light" : "dark"));
    $("first").addEventListener("click", () => goTo(direction().reverse ? steps() - 1 : 0));
    $("back").addEventListener("click", () => goTo(state.step - stepOrder()));
    $("forth").addEventListener("click", () => goTo(state.step + stepOrder()));
    $("play").addEventListener("click", () => play(!state.playing));
    $("slider").addEventListener("input", (e) => {
      if (state.playing) play(false);
      goTo(Number(e.target.value));
    });
    $("whole").addEventListener("change", drawPlane);
    $("pair-before").addEventListener("click", () => movePlane(-1));
    $("pair-after").addEventListener("click", () => movePlane(1));
    $("alike").addEventListener("click", () => {
      state.alike = !state.alike;
      goTo(state.step);
    });
    $("within").addEventListener("input", () => goTo(state.step));
    for (const [id, save] of Object.entries(SAVES)) $(id).addEventListener("click", save);
    canvas.addEventListener("mousemove", showTip);
    // A page that compares models keeps their tokens the same.
    window.addEventListener("message", (event) => {
      if (event.source !== window.parent || event.source === window || typeof event.data?.fromLast !== "number") return;
      const step = steps() - 1 - event.data.fromLast;
      if (step < 0 || step >= steps() || step === state.step) return;
      state.following = true;
      goTo(step);
      state.following = false;
    });
    canvas.addEventListener("mouseleave", () => ($("tip").hidden = true));
    canvas.addEventListener("click", (event) => {
      const cell = cellAt(event);
      if (!cell) return;
      if (state.playing) play(false);
      const row = cell.row === undefined ? null : box.rows[cell.row];
      state.step = cell.step;
      if (row && row.planes.length) choosePlane(row.planes.includes(state.plane) ? state.plane : row.planes[0]);
      else goTo(cell.step);
    });
    $("scroller").addEventListener("scroll", () => {
      $("tip").hidden = true;
      drawMap();
    });
    window.addEventListener("resize", () => {
      layOut();
      drawMap();
    });
    const system = window.matchMedia("(prefers-color-scheme: dark)");
    system.addEventListener("change", () => useTheme(system.matches ? "dark" : "light"));
    useTheme(system.matches ? "dark" : "light");
  }

  function start() {
    const first = data.directions[0];
    const units = first.units.length;
    const tokens = data.sequences.map((s) => s.tokens.length);
    const kind = first.size === 2 ? "pairs" : `groups of ${first.size}`;
    const sizes = `${units} units in ${first.groups.length} ${kind}`;
    $("about").textContent = `${data.cell}, ${sizes}, ${tokens.length > 1 ? `${tokens.length} sequences` : `${tokens[0]} tokens`}`;
    $("map-note").textContent = data.shown;
    fill($("sequence"), data.sequences.map((s, k) => [String(k), `row ${s.row}: ${s.tokens.slice(0, 5).join(" ")}…`]), "0");
    fill($("direction"), data.directions.map((d, k) => [String(k), directionName(d.name)]), "0");
    $("sequence-choice").hidden = data.sequences.length < 2;
    $("direction-choice").hidden = data.directions.length < 2;
    $("story-card").hidden = !data.named; // mere numbers stand above the heat map already
    listen();
    state.step = firstLook();
    chooseDirection(0);
  }

  // The token that mattered most, or the last that the layer reads.
  function firstLook() {
    const last = direction().reverse ? 0 : steps() - 1;
    if (!sequence().saliency) return last;
    const all = numbers(sequence().saliency);
    return all.reduce((best, x, t) => (x > all[best] ? t : best), last);
  }

  function directionName(name) {
    const [, layer, reverse] = /^l(\d+)(_reverse)?$/.exec(name);
    return `${Number(layer) + 1}${reverse ? ", backwards" : data.directions.some((d) => d.reverse) ? ", forwards" : ""}`;
  }

  start();
})();
