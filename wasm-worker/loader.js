// What the page starts as a dedicated Web Worker: loads the training program beside it and runs it.
import init from "./worker.js";
await init();
