// Checks a manifest, JSON on standard input, against its published schema: once by the validator,
// for patterns and what is required, once by the compiler, for names that the schema has not.
// Prints what is wrong; nothing if nothing is.
import { readFileSync, writeFileSync } from "node:fs";
import ts from "typescript";
import { FlinkDeployment } from "@kubernetes-models/flink/flink.apache.org/v1beta1";
import { Job } from "kubernetes-models/batch/v1";

const KINDS = {
  FlinkDeployment: [FlinkDeployment, "@kubernetes-models/flink/flink.apache.org/v1beta1"],
  Job: [Job, "kubernetes-models/batch/v1"],
};

const text = readFileSync(0, "utf8");
const manifest = JSON.parse(text);
const [model, module] = KINDS[manifest.kind];

try {
  new model(manifest).validate();
} catch (error) {
  console.log(error.message);
}

const source = `manifest-${process.pid}.ts`;
writeFileSync(
  source,
  `import type { I${manifest.kind} } from "${module}";\nexport const it: I${manifest.kind} = ${text};\n`,
);
const program = ts.createProgram([source], {
  noEmit: true,
  strict: true,
  skipLibCheck: true,
  module: ts.ModuleKind.NodeNext,
  moduleResolution: ts.ModuleResolutionKind.NodeNext,
});
for (const { messageText } of ts.getPreEmitDiagnostics(program)) {
  console.log(ts.flattenDiagnosticMessageText(messageText, "\n"));
}
