// Whatever scrolls sideways can be scrolled with the keyboard.
const reach = () => {
  for (const part of document.querySelectorAll(".md-typeset__scrollwrap, .md-typeset pre > code, .output_area")) {
    if (part.scrollWidth > part.clientWidth) {
      part.tabIndex = 0;
    }
  }
};
addEventListener("load", reach);
addEventListener("resize", reach);
addEventListener("load", () => {
  document.querySelector(".md-search")?.setAttribute("aria-label", "Search");
});
