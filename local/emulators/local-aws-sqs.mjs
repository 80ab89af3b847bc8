// Serves local-aws-sqs on 127.0.0.1 at the port given; prints "ready" when it listens.
import { createRequire } from "node:module";
import { join } from "node:path";

const [modules, port] = process.argv.slice(2);
const { createSqsServer } = createRequire(join(modules, "x.js"))("local-aws-sqs");
await createSqsServer({ hostname: "127.0.0.1", port: Number(port) });
console.log("ready");
