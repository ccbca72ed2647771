// What the page starts as a dedicated Web Worker: loads the training program and runs it.
import init from "./worker.js";
await init({ module_or_path: new URL("./worker_bg.wasm", import.meta.url) });
