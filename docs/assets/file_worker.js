// Browsers start no worker for a page that was opened as a file: the search's runs in a frame.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.title = "search";
      document.body.append(frame);
      this.inside = frame.contentWindow;
      this.inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", {data}));
      this.inside.importScripts = (...urls) => urls.reduce(
        (before, each) => before.then(() => this.load(each)), Promise.resolve());
      this.ready = this.load(url);
    }

    load(url) {
      return new Promise((done, failed) => {
        const script = this.inside.document.createElement("script");
        script.onload = done;
        script.onerror = () => failed(new Error(`${url} does not load`));
        script.src = url;
        this.inside.document.body.append(script);
      });
    }

    postMessage(data) {
      this.ready.then(() => this.inside.dispatchEvent(new this.inside.MessageEvent("message", {data})));
    }

    terminate() {}
  };
}
