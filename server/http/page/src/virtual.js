// Says which rows of a long table are in sight, so that only they are drawn.
import { useEffect, useLayoutEffect, useState } from "preact/hooks";

const kMargin = 12;

// Returns {from, to} of `count` rows of `height` pixels in the scrolling element of `ref`.
export function useVisibleRows(ref, count, height) {
  const [place, setPlace] = useState({ top: 0, size: 900 });
  useLayoutEffect(() => {
    const element = ref.current;
    if (!element) return undefined;
    let frame = 0;
    const measure = () => {
      frame = 0;
      setPlace((old) => {
        const next = { top: element.scrollTop, size: element.clientHeight };
        return old.size === next.size && Math.floor(old.top / height) === Math.floor(next.top / height) ? old : next;
      });
    };
    const later = () => {
      if (frame === 0) frame = requestAnimationFrame(measure);
    };
    measure();
    element.addEventListener("scroll", later, { passive: true });
    const observer = new ResizeObserver(later);
    observer.observe(element);
    return () => {
      element.removeEventListener("scroll", later);
      observer.disconnect();
      cancelAnimationFrame(frame);
    };
  }, [height]);
  const from = Math.max(0, Math.min(Math.floor(place.top / height) - kMargin, count - 1));
  const to = Math.min(count, Math.ceil((place.top + place.size) / height) + kMargin);
  return { from: Math.max(0, from), to };
}

// Scrolls so far that a row is in sight, below a header of `header` pixels.
export function showRow(element, index, height, header = 0) {
  if (!element) return;
  const top = index * height;
  if (top < element.scrollTop) element.scrollTop = top;
  else if (top + height + header > element.scrollTop + element.clientHeight) {
    element.scrollTop = top + height + header - element.clientHeight;
  }
}

// Calls a function after each pause of typing.
export function useDebounced(value, ms, action) {
  useEffect(() => {
    const timer = setTimeout(() => action(value), ms);
    return () => clearTimeout(timer);
  }, [value]);
}
