/* Browsers start no workers from disk. There the search runs in a hidden frame that speaks as a worker would. */
(() => {
  if (location.protocol !== "file:") return;
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      this.waiting = [];
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.frame.onload = () => {
        const inner = this.frame.contentWindow;
        inner.postMessage = (data) => this.hear(data);
        inner.importScripts = (...all) => Promise.all(all.map((one) => this.load(one)));
        this.load(new URL(address, document.baseURI)).then(() => {
          this.ready = true;
          this.waiting.splice(0).forEach((data) => this.postMessage(data));
        });
      };
      this.frame.srcdoc = "<!doctype html><title>search</title>";
      document.body.append(this.frame);
    }
    load(address) {
      return new Promise((done, failed) => {
        const script = this.frame.contentDocument.createElement("script");
        Object.assign(script, { src: String(address), onload: done, onerror: failed });
        this.frame.contentDocument.body.append(script);
      });
    }
    hear(data) {
      const event = new MessageEvent("message", { data });
      this.dispatchEvent(event);
      if (this.onmessage) this.onmessage(event);
    }
    postMessage(data) {
      if (!this.ready) return void this.waiting.push(data);
      const inner = this.frame.contentWindow;
      inner.dispatchEvent(new inner.MessageEvent("message", { data }));
    }
    terminate() {
      this.frame.remove();
    }
  };
})();
