// One event stream for all tabs of a browser, in a shared worker: over HTTP/1.1 a browser opens at most six
// connections to a host, and a stream a tab would leave none for the seventh.
//
// A page says "listen" or "leave". It hears { kind, data }: "open" and "error" without data, "run" and "points" with
// the text of the event.
(function () {
    "use strict";

    var RETRY_MS = 3000;
    var listeners = new Set();
    var source = null;
    var retry = 0;
    // The newest "run" event, for a page that begins to listen between two.
    var run = null;

    function tell(kind, data) {
        listeners.forEach(function (port) {
            port.postMessage({ kind: kind, data: data });
        });
    }

    function open() {
        source = new EventSource("./v1/run/events");
        source.onopen = function () {
            tell("open");
        };
        source.onerror = function () {
            tell("error");
            // The browser tries again by itself unless it was answered with something that is no event stream.
            if (source && source.readyState === EventSource.CLOSED) {
                close();
                retry = setTimeout(open, RETRY_MS);
            }
        };
        source.addEventListener("run", function (event) {
            run = event.data;
            tell("run", event.data);
        });
        source.addEventListener("points", function (event) {
            tell("points", event.data);
        });
    }

    function close() {
        clearTimeout(retry);
        if (source) source.close();
        source = null;
        run = null;
    }

    function listen(port) {
        listeners.add(port);
        if (!source) {
            clearTimeout(retry);
            open();
        } else if (source.readyState === EventSource.OPEN) {
            port.postMessage({ kind: "open" });
            if (run !== null) port.postMessage({ kind: "run", data: run });
        }
    }

    function leave(port) {
        listeners.delete(port);
        if (listeners.size === 0) close();
    }

    self.onconnect = function (event) {
        var port = event.ports[0];
        port.onmessage = function (message) {
            if (message.data === "listen") listen(port);
            else leave(port);
        };
    };
})();
