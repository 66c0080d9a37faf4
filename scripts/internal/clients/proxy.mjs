// Passes requests on as they are, with the bearer token added and URI put where the
// conformance suite names a resource of its own: for clients that cannot be told.
// Prints the port that it listens at. proxy.mjs PORT TOKEN URI
import http from "node:http";

const [port, token, uri] = process.argv.slice(2);

const server = http.createServer(async (from, to) => {
  const parts = [];
  for await (const part of from) parts.push(part);
  const body = Buffer.from(Buffer.concat(parts).toString("latin1").replaceAll("test://watched-resource", uri), "latin1");
  const headers = [...from.rawHeaders, "Authorization", `Bearer ${token}`];
  const length = headers.findIndex((name) => name.toLowerCase() === "content-length");
  if (length >= 0) headers[length + 1] = String(body.length);
  const out = http.request({ host: "127.0.0.1", port, method: from.method, path: from.url, headers, setHost: false }, (answer) => {
    to.writeHead(answer.statusCode, answer.rawHeaders);
    to.flushHeaders();
    answer.pipe(to);
  });
  out.on("error", (err) => {
    if (!to.headersSent) to.writeHead(502);
    to.end(String(err));
  });
  to.on("close", () => out.destroy());
  out.end(body);
});
server.listen(0, "127.0.0.1", () => console.log(server.address().port));
