// ---- A digit, drawn and read pixel by pixel ----

const SIDE = 28;
const BOX = 20; // as in MNIST: a digit fills 20 x 20 pixels, and its centre of mass is the centre of the image
find("input").innerHTML = `<p>Draw a digit.</p><canvas id="pad" width="280" height="280" aria-label="draw a digit here"></canvas>
<p><button id="clear">Clear</button></p>`;
const pad = find("pad"), ink = pad.getContext("2d", { willReadFrequently: true });
Object.assign(ink, { lineWidth: 22, lineCap: "round", lineJoin: "round", strokeStyle: "#fff" });

// What is drawn on a square picture: 0 to 1 for each pixel.
function greys(context, side) {
  const { data } = context.getImageData(0, 0, side, side);
  return Array.from({ length: side * side }, (_, i) => data[4 * i + 3] / 255);
}

// The part of a picture that is not empty, and its centre of mass; null if all of it is.
function extent(values, side) {
  let [left, top, right, bottom, mass, x, y] = [side, side, -1, -1, 0, 0, 0];
  values.forEach((value, i) => {
    if (!value) return;
    const [column, row] = [i % side, Math.floor(i / side)];
    [left, right, top, bottom] = [Math.min(left, column), Math.max(right, column), Math.min(top, row), Math.max(bottom, row)];
    [mass, x, y] = [mass + value, x + value * (column + 0.5), y + value * (row + 0.5)];
  });
  return mass ? { left, top, width: right - left + 1, height: bottom - top + 1, x: x / mass, y: y / mass } : null;
}

// The drawing as an image of the data set: 784 numbers from 0 to 1; null if nothing is drawn.
function image() {
  const drawn = extent(greys(ink, pad.width), pad.width);
  if (!drawn) return null;
  const canvas = Object.assign(document.createElement("canvas"), { width: SIDE, height: SIDE });
  const small = canvas.getContext("2d"), scale = BOX / Math.max(drawn.width, drawn.height);
  small.imageSmoothingQuality = "high";
  const [x, y] = [SIDE / 2 - scale * (drawn.x - drawn.left), SIDE / 2 - scale * (drawn.y - drawn.top)];
  small.drawImage(pad, drawn.left, drawn.top, drawn.width, drawn.height, x, y, scale * drawn.width, scale * drawn.height);
  return greys(small, SIDE);
}

const point = (event) => [event.offsetX * (pad.width / pad.clientWidth), event.offsetY * (pad.height / pad.clientHeight)];
pad.onpointerdown = (event) => {
  pad.setPointerCapture(event.pointerId);
  ink.beginPath();
  ink.moveTo(...point(event));
  ink.lineTo(...point(event));
  ink.stroke();
};
pad.onpointermove = (event) => {
  if (!event.buttons) return;
  ink.lineTo(...point(event));
  ink.stroke();
};
pad.onpointerup = () => {
  const pixels = image();
  if (pixels) stream(pixels, SIDE);
};
find("clear").onclick = () => {
  calls++;
  ink.clearRect(0, 0, pad.width, pad.height);
  model.reset();
  show(0);
};
