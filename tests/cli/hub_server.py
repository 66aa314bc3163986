#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A model hub on the loopback interface, for tests of `lemma pull`: hub_server.py FOLDER LOG

Serves the files of FOLDER as the repository OWNER/model; how it behaves depends on OWNER:
  plain      as it should
  drops      closes the connection after every 200,000 bytes
  deaf       the same, and it sends everything from the start whatever range is asked for
  corrupt    one byte of every file is wrong
  short      announces more bytes than it sends, always
  long       lists a size that is less than what it sends
  gated      wants the token "secret"
  moved      redirects to the same host under another name
  broken     answers 500
  hostile    lists a file whose path leads out of the repository
  nonsense   lists no list
Prints its port. Each request goes to LOG: host, path, range, authorization. Ends by
itself after two minutes.
"""
import hashlib
import json
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

FOLDER, LOG = sys.argv[1], sys.argv[2]
PIECE = 200_000


def contents(path):
    with open(os.path.join(FOLDER, path), "rb") as file:
        return file.read()


def listing(owner):
    siblings = []
    for name in sorted(os.listdir(FOLDER)):
        data = contents(name)
        size = len(data) - (1000 if owner == "long" else 0)
        siblings.append({"rfilename": name, "size": size,
                         "lfs": {"sha256": hashlib.sha256(data).hexdigest(), "size": size}})
    if owner == "hostile":
        siblings.append({"rfilename": "../../evil.gguf", "size": 4})
    return "[1, 2" if owner == "nonsense" else json.dumps({"siblings": siblings})


class Hub(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments):
        pass

    def plain(self, status, body, headers=()):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        with open(LOG, "a", encoding="utf-8") as log:
            log.write(json.dumps([self.headers["Host"].split(":")[0], self.path,
                                  self.headers.get("Range", ""),
                                  self.headers.get("Authorization", "")]) + "\n")
        parts = self.path.split("?")[0].strip("/").split("/")
        owner = parts[2] if parts[0] == "api" else parts[0]
        if owner == "broken":
            return self.plain(500, b"no")
        if owner == "gated" and self.headers.get("Authorization") != "Bearer secret":
            return self.plain(401, b"no")
        if parts[0] == "api":
            return self.plain(200, listing(owner).encode())
        name = parts[-1]
        if name not in os.listdir(FOLDER):
            return self.plain(404, b"no such file")
        if owner == "moved" and self.headers["Host"].startswith("127."):
            host = "localhost:%d" % self.server.server_port
            return self.plain(302, b"", [("Location", "http://%s%s" % (host, self.path))])
        self.file(owner, contents(name))

    def file(self, owner, data):
        start, status, headers = 0, 200, [("ETag", '"%s"' % hashlib.md5(data).hexdigest())]
        wanted = self.headers.get("Range", "")
        if wanted and owner != "deaf":
            start, status = int(wanted.removeprefix("bytes=").split("-")[0]), 206
            if start >= len(data):
                return self.plain(416, b"")
            headers.append(("Content-Range", "bytes %d-%d/%d" % (start, len(data) - 1, len(data))))
        body = data[start:]
        if owner == "corrupt":
            body = body[:100] + bytes([body[100] ^ 1]) + body[101:]
        if owner == "short":
            body = body[:-1]
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data) - start))
        self.end_headers()
        if owner in ("drops", "deaf") and len(body) > PIECE:
            self.wfile.write(body[:PIECE])
            self.close_connection = True
            return
        self.wfile.write(body)
        self.close_connection = owner == "short"


server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
print(server.server_port, flush=True)
threading.Thread(target=server.serve_forever, daemon=True).start()
threading.Event().wait(120)
