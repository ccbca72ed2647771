// Runs before anything else and in any browser: words for those that cannot run the page's own program.
// The program removes the element #boot when it starts, and does not start where `data-lack` is set.
(function () {
    "use strict";

    // The smallest module with a SIMD instruction (i32.const 0, i8x16.splat, i8x16.popcnt).
    var SIMD = [
        0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0, 10, 10, 1, 8, 0, 65, 0, 253, 15, 253, 98, 11,
    ];

    var UPDATE = " Update the browser, or use a recent Chrome, Edge, Firefox or Safari.";
    var told = false;

    function say(words, state) {
        var place = document.getElementById("boot-words");
        if (!place || told) return;
        told = true;
        place.textContent = words;
        place.parentNode.setAttribute("data-state", state);
    }

    function lack() {
        if (typeof WebAssembly !== "object" || typeof WebAssembly.validate !== "function") {
            return ["This browser cannot run WebAssembly, which this page is made of." + UPDATE, "no-wasm"];
        }
        if (!WebAssembly.validate(new Uint8Array(SIMD))) {
            return ["This browser or processor lacks WebAssembly SIMD, without which training is too slow to help." + UPDATE, "no-simd"];
        }
        return null;
    }

    function failed() {
        say("The page could not be loaded completely. Check the network and reload it.", "incomplete");
    }

    var missing = lack();
    if (missing) {
        document.documentElement.setAttribute("data-lack", missing[1]);
        document.addEventListener("DOMContentLoaded", function () {
            say(missing[0], missing[1]);
        });
    }
    // In the capture phase: a script that cannot be fetched tells only its own element.
    window.addEventListener("error", failed, true);
    window.addEventListener("unhandledrejection", failed);
})();
