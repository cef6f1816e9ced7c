// A prebuilt JupyterLab extension, written by hand: the home page shows today's progress without anybody running it,
// and the file browser is folded at the first visit, so that lessons have its room; links lead everywhere.
// JupyterLab loads this file as a module-federation container: init() is given its shared packages, get() the plugin.
window._JUPYTERLAB = window._JUPYTERLAB || {};
window._JUPYTERLAB["w2w-home"] = (() => {
  const HOME = "home.ipynb";
  const TAG = "w2w-home";
  let shared;

  async function load(name) {
    const [version] = Object.values(shared[name]);
    return (await version.get())();
  }

  async function refresh(panel, runCells) {
    if (!panel || panel.context.path !== HOME) return;
    await panel.context.ready;
    await panel.sessionContext.ready;
    const cells = panel.content.widgets.filter(
      (cell) => cell.model.type === "code" && (cell.model.getMetadata("tags") || []).includes(TAG)
    );
    const mine = panel.model.dirty; // what the learner typed is saved by the learner
    await runCells(panel.content, cells, panel.sessionContext);
    if (!mine) await panel.context.save();
    await new Promise((go) => setTimeout(go, 100)); // the new output is drawn
    const again = focused && panel.node.querySelector(`.w2w-home a[href="${focused}"]`);
    if (again && isAround(document.activeElement)) again.focus();
    panel.node.dataset.w2wRuns = 1 + Number(panel.node.dataset.w2wRuns || 0);
  }

  // The link that has the focus goes when the output is drawn anew, and JupyterLab gives the focus to the cell or the
  // notebook around it: the link is remembered, and gets it back.
  let focused = null;
  document.addEventListener("focusin", ({ target }) => {
    if (!isAround(target)) focused = target.closest(".w2w-home") ? target.getAttribute("href") : null;
  });

  function isAround(node) {
    return node === document.body || node.matches(".jp-Cell") || Boolean(node.querySelector(".jp-Cell"));
  }

  // Once for each browser: who opens the file browser (Ctrl-B) finds it open the next time, as JupyterLab does it.
  function foldOnce(shell) {
    if (localStorage.getItem(`${TAG}:folded`)) return;
    localStorage.setItem(`${TAG}:folded`, "yes");
    shell.collapseLeft();
  }

  // A field of a form keeps Escape and Shift-Enter to itself, and Tab goes far: both keys lead to the cell below.
  function leaveForm(event, panel, selectBelow) {
    if (event.key !== "Escape" && !(event.key === "Enter" && event.shiftKey)) return;
    if (!panel || !panel.node.contains(event.target) || !event.target.closest(".jp-OutputArea .jupyter-widgets")) return;
    event.preventDefault();
    event.stopPropagation();
    selectBelow(panel.content);
    panel.content.activeCell.node.focus(); // a number that was typed is kept when its field loses the focus
  }

  // Enter in a field of a form: what was typed is kept, and the next field or choice has the focus.
  function nextField(event) {
    if (event.key !== "Enter" || event.shiftKey || !event.target.matches(".jupyter-widgets input[type=text]")) return;
    const output = event.target.closest(".jp-OutputArea");
    const fields = [...output.querySelectorAll("input[type=text], .widget-toggle-buttons button")];
    const next = fields.slice(fields.indexOf(event.target) + 1).find((field) => !field.disabled);
    if (next) setTimeout(() => next.focus());
  }

  return {
    init: (scope) => {
      shared = scope;
    },
    get: async () => {
      const { INotebookTracker, NotebookActions } = await load("@jupyterlab/notebook");
      const plugin = {
        id: "w2w-home:refresh",
        autoStart: true,
        requires: [INotebookTracker],
        activate: (app, tracker) => {
          document.addEventListener(
            "keydown",
            (event) => leaveForm(event, tracker.currentWidget, NotebookActions.selectBelow),
            true
          );
          document.addEventListener("keydown", nextField, true);
          app.restored.then(() => foldOnce(app.shell));
          tracker.currentChanged.connect((_, panel) => refresh(panel, NotebookActions.runCells).catch(console.warn));
        },
      };
      return () => ({ __esModule: true, default: plugin });
    },
  };
})();
