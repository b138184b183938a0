// Saves a drawing of the page as a picture, with the colours that it has now.
import { colour } from "./colours.js";
import { download } from "../widgets.js";

const kCopied = [
  "fill",
  "stroke",
  "stroke-width",
  "stroke-opacity",
  "opacity",
  "font",
  "font-size",
  "font-family",
  "font-weight",
];

export async function saveSvgAsPng(svg, name) {
  const copy = svg.cloneNode(true);
  const from = svg.querySelectorAll("*");
  copy.querySelectorAll("*").forEach((element, index) => {
    const style = getComputedStyle(from[index]);
    for (const property of kCopied) element.setAttribute(property, style.getPropertyValue(property));
  });
  const { width, height } = svg.viewBox.baseVal;
  copy.setAttribute("width", width);
  copy.setAttribute("height", height);
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(new XMLSerializer().serializeToString(copy))}`;
  await image.decode();
  const canvas = document.createElement("canvas");
  canvas.width = width * 2;
  canvas.height = height * 2;
  const ctx = canvas.getContext("2d");
  ctx.fillStyle = colour("--surface");
  ctx.fillRect(0, 0, canvas.width, canvas.height);
  ctx.drawImage(image, 0, 0, canvas.width, canvas.height);
  canvas.toBlob((blob) => blob && download(name, blob), "image/png");
}
