// Holds what the charts of a page share: the place of the cursor, whether it is frozen, and the part of the axis in sight.
import { signal } from "@preact/signals";

export class ChartGroup {
  // The x under the pointer; null without one.
  x = signal(null);
  // True while the place stays, whatever the pointer does.
  isFrozen = signal(false);

  move(x) {
    if (!this.isFrozen.value) this.x.value = x;
  }

  toggleFrozen(x) {
    if (this.isFrozen.value) {
      this.isFrozen.value = false;
      this.x.value = x;
    } else if (x !== null) {
      this.x.value = x;
      this.isFrozen.value = true;
    }
  }
}
