// The pictures that are kept: their files, the addresses that they show, and what has to be there first.
// Their heights leave little empty, since an empty part would hide a difference in the other one.
export const kPictures = [
  [
    "runs",
    "/?cols=id,state,name,user,optimizer.sgd.lr,progress,test.accuracy,train.loss,took,created",
    ".progress",
  ],
  ["job", "/jobs/3?smooth=0.8", ".chart canvas", { isDark: true }],
  ["failure", "/jobs/7", ".failure .log-line", { height: 740 }],
  ["compare", "/compare?jobs=1,2,3,4,5&base=2&smooth=0.8", ".chart canvas"],
  ["scaling", "/compare?jobs=4,5,6", ".scaling-picture circle", { at: "Scaling" }],
  ["queue", "/queue", ".queue-table tbody tr", { height: 290 }],
  ["schedule", "/schedule", ".gantt-expected", { height: 400 }],
  ["devices", "/devices?by=job", ".device-held", { height: 290 }],
  ["timeline", "/jobs/6?tab=timeline", ".span-compute", { height: 780 }],
  ["replicas", "/jobs/6?tab=attempts", ".hosting rect", { height: 700 }],
  ["clone", "/jobs/3/clone?set=optimizer.sgd.lr%3D0.05&set=train.epochs%3D9", ".diff-is"],
  ["run-spec", "/specs/mlp-glyphs/run?set=train.epochs%3D9", ".diff-is"],
  ["sweep", "/sweeps/1", ".trial-line"],
  ["phone-runs", "/", ".run-table .row-link", { width: 390, height: 800 }],
  ["phone-schedule", "/schedule", ".gantt-expected", { width: 390, height: 520 }],
];

export const kRecordingFile = "recorded_yard.json.gz";
