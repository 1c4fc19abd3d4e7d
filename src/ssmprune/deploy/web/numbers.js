// ---- Numbers from a text field ----

const { perStep, tokens } = model.about;
const wanted = tokens ? `Tokens from 0 to ${tokens - 1}` : `Numbers, ${perStep} for each step`;
find("input").innerHTML = `<p><label for="numbers">${wanted}, separated by spaces, commas or lines:</label></p>
<textarea id="numbers" rows="8"></textarea><p><button id="run">Stream</button></p><p id="wrong" role="alert"></p>`;
find("run").onclick = async () => {
  const numbers = find("numbers").value.split(/[\s,;]+/).filter(Boolean).map(Number);
  const steps = Array.from({ length: Math.ceil(numbers.length / perStep) }, (_, t) => numbers.slice(t * perStep, (t + 1) * perStep));
  find("wrong").textContent = "";
  try {
    await stream(steps, Math.ceil(steps.length / 60));
  } catch (error) {
    find("wrong").textContent = error.message;
  }
};
