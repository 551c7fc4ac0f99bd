"""Replies to kubectl like the API server of a Kubernetes cluster: kubernetes_api.py PORT COUNT

The replies are the documents that an API server sends for these requests. The pods p1 to pCOUNT are
network namespaces of this host with the names h1 to hCOUNT, and the addresses 10.79.0.1 and so on.
`kubectl exec` runs its command there; the streams use SPDY, which every kubectl can use.
"""

import contextlib
import json
import socket
import struct
import subprocess
import sys
import threading
import zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

# Types of control frames.
SYN_STREAM, SYN_REPLY, PING = 1, 2, 6
FIN = 1
# The order in which kubectl creates its streams, and their numbers.
ERROR, STDIN, STDOUT, STDERR = 1, 3, 5, 7
COUNT = int(sys.argv[2])


def pod(number, phase="Running"):
    status = {"phase": phase}
    if phase == "Running":
        status["podIP"] = f"10.79.0.{number}"
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {"name": f"p{number}", "namespace": "default", "labels": {"app": "rperf"}},
        "spec": {"containers": [{"name": "rperf", "image": "rdma-perftools"}]},
        "status": status,
    }


PODS = [pod(number) for number in range(1, COUNT + 1)] + [pod(COUNT + 1, "Pending")]
RESOURCE = {"singularName": "", "namespaced": True}
DOCUMENTS = {
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": []},
    "/api/v1": {
        "kind": "APIResourceList",
        "groupVersion": "v1",
        "resources": [
            {**RESOURCE, "name": "pods", "kind": "Pod", "verbs": ["get", "list"], "shortNames": ["po"]},
            {**RESOURCE, "name": "pods/exec", "kind": "PodExecOptions", "verbs": ["create", "get"]},
        ],
    },
}
PODS_PATH = "/api/v1/namespaces/default/pods"


class Api(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments):
        pass

    def reply(self, status, document):
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def fail(self, code, reason, message):
        status = {"kind": "Status", "apiVersion": "v1", "status": "Failure"}
        self.reply(code, {**status, "reason": reason, "message": message, "code": code})

    def do_GET(self):
        url = urlsplit(self.path)
        query = parse_qs(url.query)
        names = {pod["metadata"]["name"]: pod for pod in PODS}
        print(self.command, self.path, flush=True)
        if url.path in DOCUMENTS:
            self.reply(200, DOCUMENTS[url.path])
        elif url.path == PODS_PATH:
            wanted = query.get("labelSelector", ["app=rperf"]) == ["app=rperf"]
            items = PODS if wanted else []
            self.reply(200, {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items})
        elif url.path.removeprefix(PODS_PATH + "/") in names:
            self.reply(200, names[url.path.removeprefix(PODS_PATH + "/")])
        elif url.path.endswith("/exec"):
            # A kubectl that prefers WebSocket then uses SPDY.
            self.fail(400, "BadRequest", "unable to upgrade: only SPDY/3.1 is supported")
        else:
            self.fail(404, "NotFound", f"{url.path} not found")

    def do_POST(self):
        url = urlsplit(self.path)
        query = parse_qs(url.query)
        print(self.command, self.path, flush=True)
        name = url.path.removeprefix(PODS_PATH + "/").removesuffix("/exec")
        versions = ",".join(self.headers.get_all("X-Stream-Protocol-Version", []))
        if self.headers.get("Upgrade") != "SPDY/3.1" or "v4.channel.k8s.io" not in versions:
            self.fail(400, "BadRequest", "unable to upgrade: expected SPDY/3.1")
            return
        self.send_response(101)
        self.send_header("Connection", "Upgrade")
        self.send_header("Upgrade", "SPDY/3.1")
        self.send_header("X-Stream-Protocol-Version", "v4.channel.k8s.io")
        self.end_headers()
        self.wfile.flush()
        self.close_connection = True
        Exec(self.rfile, self.connection, name.replace("p", "h"), query["command"]).run()


class Exec:
    """The streams of one `kubectl exec`."""

    def __init__(self, reader, connection, namespace, command):
        self.reader = reader
        self.connection = connection
        self.command = ["ip", "netns", "exec", namespace, *command]
        self.lock = threading.Lock()
        self.headers = zlib.compressobj()

    def send(self, head, flags, data):
        with self.lock:
            size = struct.pack(">I", flags << 24 | len(data))
            self.connection.sendall(struct.pack(">I", head) + size + data)

    def control(self, kind, data):
        self.send(0x8003 << 16 | kind, 0, data)

    def accept(self, stream):
        # No headers. All blocks of headers of a connection are one compressed stream.
        block = self.headers.compress(bytes(4)) + self.headers.flush(zlib.Z_SYNC_FLUSH)
        self.control(SYN_REPLY, struct.pack(">I", stream) + block)

    def copy(self, pipe, stream):
        while data := pipe.read1(65536):
            self.send(stream, 0, data)

    def run(self):
        pipe = subprocess.PIPE
        child = subprocess.Popen(self.command, stdin=pipe, stdout=pipe, stderr=pipe)
        outputs = [(child.stdout, STDOUT), (child.stderr, STDERR)]
        threads = [threading.Thread(target=self.copy, args=output) for output in outputs]
        threads.append(threading.Thread(target=self.report, args=(child, threads[:])))
        # A killed kubectl leaves half of a frame or a reset connection, and a program that has
        # ended does not read. In each case the program's input must end, as a kubelet ends it.
        with contextlib.suppress(OSError, struct.error):
            self.serve(child, threads)
        with contextlib.suppress(OSError):
            child.stdin.close()

    def serve(self, child, threads):
        streams = set()
        while head := self.reader.read(8):
            first, second = struct.unpack(">II", head)
            data = self.reader.read(second & 0xFFFFFF)
            flags = second >> 24
            if first & 1 << 31 == 0:
                if first == STDIN and data:
                    child.stdin.write(data)
                    child.stdin.flush()
                if first == STDIN and flags & FIN:
                    child.stdin.close()
            elif first & 0xFFFF == SYN_STREAM:
                stream = struct.unpack(">I", data[:4])[0]
                streams.add(stream)
                self.accept(stream)
                if streams == {ERROR, STDIN, STDOUT, STDERR}:
                    for thread in threads:
                        thread.start()
            elif first & 0xFFFF == PING:
                self.control(PING, data)

    def report(self, child, copies):
        status = child.wait()
        for copy in copies:
            copy.join()
        document = {"metadata": {}, "status": "Success"}
        if status != 0:
            causes = [{"reason": "ExitCode", "message": str(status)}]
            document = {
                "metadata": {},
                "status": "Failure",
                "reason": "NonZeroExitCode",
                "message": f"command terminated with non-zero exit code: exit status {status}",
                "details": {"causes": causes},
            }
        try:
            self.send(ERROR, FIN, json.dumps(document).encode())
            for stream in (STDOUT, STDERR):
                self.send(stream, FIN, b"")
            self.connection.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # kubectl was killed


ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Api).serve_forever()
