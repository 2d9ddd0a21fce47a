"""A link that can go wrong: forwards TCP connections to one address, late, slowly, not at all, or cuts them.

    proxy = FaultProxy(("10.0.0.2", 22))     # listens on proxy.address
    proxy.set(delay=0.05)                    # each byte arrives so many seconds later, in both directions
    proxy.set(rate=2000)                     # bytes per second, each way
    proxy.set(stalled=True)                  # nothing arrives; connections stay
    proxy.set(cut=True)                      # connections end now, new ones are refused at once
    proxy.set()                              # whole again; what was stalled arrives
"""
import collections
import socket
import threading
import time

_BLOCK = 64 * 1024
_TICK = 0.02  # at most so late a change of the faults is noticed


class FaultProxy:
    def __init__(self, target, listen_on=("127.0.0.1", 0)):
        self._target = target
        self._lock = threading.Condition()
        self._faults = {"delay": 0.0, "rate": None, "stalled": False, "cut": False}
        self._open = set()
        self._server = socket.create_server(listen_on, backlog=64)
        self.address = self._server.getsockname()
        threading.Thread(target=self._accept, daemon=True).start()

    def set(self, delay=0.0, rate=None, stalled=False, cut=False):
        """The whole state of the link: what is not named is whole."""
        with self._lock:
            self._faults = {"delay": delay, "rate": rate, "stalled": stalled, "cut": cut}
            broken = list(self._open) if cut else []
            self._lock.notify_all()
        for end in broken:
            _abort(end)

    def close(self):
        _abort(self._server)
        self._server.close()
        self.set(cut=True)

    def _accept(self):
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._connect, args=(client,), daemon=True).start()

    def _connect(self, client):
        try:
            if self._faults["cut"]:
                raise OSError("cut")
            server = socket.create_connection(self._target, timeout=10)
            server.settimeout(None)
        except OSError:
            _abort(client)
            return
        for end in (client, server):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._lock:
            self._open |= {client, server}
            is_cut = self._faults["cut"]
        if is_cut:
            _abort(client)
            _abort(server)
        ways = [threading.Thread(target=self._carry, args=way, daemon=True) for way in ((client, server), (server, client))]
        for way in ways:
            way.start()
        for way in ways:
            way.join()
        with self._lock:
            self._open -= {client, server}
        client.close()
        server.close()

    def _carry(self, source, sink):
        """One direction of one connection, to its end."""
        queue = collections.deque()  # (when it came, bytes); no bytes: the end
        reader = threading.Thread(target=self._read, args=(source, queue), daemon=True)
        reader.start()
        try:
            while block := self._next(queue):
                sink.sendall(block)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            _abort(source)
            _abort(sink)
        reader.join()

    def _read(self, source, queue):
        block = b"x"
        while block:
            try:
                block = source.recv(_BLOCK)
            except OSError:
                block = b""
            with self._lock:
                queue.append((time.monotonic(), block))
                self._lock.notify_all()
                # A reader that is far ahead waits: the sender feels the link.
                while len(queue) > 64 and not self._faults["cut"]:
                    self._lock.wait(_TICK)

    def _next(self, queue):
        """The next bytes that may go on, as many as the rate allows in a tick; none: the end."""
        with self._lock:
            while not self._faults["cut"]:
                wait = _TICK
                if queue and not self._faults["stalled"]:
                    came, block = queue[0]
                    wait = came + self._faults["delay"] - time.monotonic()
                    if wait <= 0:
                        break
                self._lock.wait(min(wait, _TICK))
            else:
                return b""
            queue.popleft()
            rate = self._faults["rate"]
            count = len(block) if rate is None else max(1, int(rate * _TICK))
            if count < len(block):
                queue.appendleft((came, block[count:]))
        if rate is not None:
            time.sleep(_TICK)
        return block[:count]


def _abort(end):
    """Both directions end at once, as when a router forgets the connection and says so."""
    try:
        end.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
