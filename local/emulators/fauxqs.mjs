// Serves fauxqs on 127.0.0.1 at the port given; prints "ready" when it listens. Its own server listens on every interface, whatever
// host it is told, so only its app is taken.
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [modules, port] = process.argv.slice(2);
const { buildApp } = await import(pathToFileURL(join(modules, "fauxqs", "dist", "app.js")));
const app = buildApp({ logger: false });
await app.listen({ host: "127.0.0.1", port: Number(port) });
console.log("ready");
