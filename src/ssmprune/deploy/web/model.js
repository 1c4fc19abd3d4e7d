// A stream of a model, from WebAssembly. Nothing is loaded but the .wasm file beside this module.
//
//     import { load } from "./NAME.js";
//     const model = await load();      // or load(bytes), for example load(readFileSync("NAME.wasm")) in Node
//     model.step([0.5]);               // the numbers of a step, or a token; returns model.logits, of the sequence so far
//     model.best;                      // the class with the largest logit, counted from 0
//     model.reset();                   // start a new sequence

const ABOUT = /*ABOUT*/;

// The nearest whole number, halves to even, clamped to 16 bits.
function sampleOf(x, scale, offset) {
  const exact = (x - offset) / scale, low = Math.floor(exact), rest = exact - low;
  const near = rest < 0.5 || (rest === 0.5 && low % 2 === 0) ? low : low + 1;
  return Math.max(-32767, Math.min(32767, near));
}

function check(x) {
  if (x.length !== ABOUT.perStep) throw new RangeError(`Expected ${ABOUT.perStep} numbers for a step, got ${x.length}.`);
  for (const value of x) {
    if (typeof value !== "number" || !Number.isFinite(value)) throw new TypeError(`Expected finite numbers, got ${value}.`);
    if (ABOUT.tokens && !(Number.isInteger(value) && value >= 0 && value < ABOUT.tokens))
      throw new RangeError(`Expected a token from 0 to ${ABOUT.tokens - 1}, got ${value}.`);
  }
}

export async function load(source = new URL(/*WASM*/, import.meta.url)) {
  const bytes = source instanceof URL ? await (await fetch(source)).arrayBuffer() : source;
  const { memory, ...wasm } = (await WebAssembly.instantiate(bytes)).instance.exports;
  const { perStep, outputs, tokens, samples, unit } = ABOUT;
  const Input = tokens ? Int32Array : samples ? Int16Array : Float32Array;
  const input = new Input(memory.buffer, wasm.input(), perStep);
  const logits = new (unit ? Int32Array : Float32Array)(memory.buffer, wasm.logits(), outputs);
  const text = new Uint8Array(memory.buffer, wasm.id());
  wasm.reset();
  return {
    about: ABOUT,
    id: new TextDecoder().decode(text.subarray(0, text.indexOf(0))),
    logits, // of a model in whole numbers these are whole; times about.unit they are those of the trained model
    reset: () => wasm.reset(),
    step(x) {
      const values = typeof x === "number" ? [x] : x;
      check(values);
      for (let i = 0; i < perStep; i++)
        input[i] = samples ? sampleOf(values[i], samples.scale[i], samples.offset[i]) : values[i];
      wasm.step();
      return logits;
    },
    get best() {
      return logits.indexOf(Math.max(...logits));
    },
    get probabilities() {
      const top = Math.max(...logits);
      const powers = Array.from(logits, (logit) => Math.exp((logit - top) * (unit ?? 1)));
      const sum = powers.reduce((a, b) => a + b);
      return powers.map((power) => power / sum);
    },
  };
}
