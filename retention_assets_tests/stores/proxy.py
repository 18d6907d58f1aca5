"""A proxy on loopback before PostgreSQL, which loses the answer to a commit: the server has done it, and nobody hears of it."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread

from sqlalchemy import make_url


class Proxy:
    """Passes everything on, until it is to lose the answer to the next commit of a transaction that deletes.

    `is_down`: connections made after that are closed at once.
    """

    def __init__(self, folder: str) -> None:
        self._server = str(Path(folder) / ".s.PGSQL.5432")
        self._door = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._door.getsockname()[1]
        self.loses = self.goes_down = self.is_down = False
        self.lost = 0
        # What the transaction has sent whose answer is to be lost.
        self.about = b"DELETE FROM"
        Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._door.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._door.accept()
            except OSError:
                return
            if self.is_down:
                client.close()
                continue
            server = socket.socket(socket.AF_UNIX)
            server.connect(self._server)
            Thread(target=self._talk, args=(client, server), daemon=True).start()

    def _talk(self, client: socket.socket, server: socket.socket) -> None:
        answers = Thread(target=_copy, args=(server, client), daemon=True)
        answers.start()
        deletes = False
        with suppress(OSError):
            while data := client.recv(65536):
                deletes |= self.about in data
                if self.loses and deletes and b"COMMIT" in data:
                    self.loses, self.is_down, self.lost = False, self.goes_down, self.lost + 1
                    # Nothing reaches the client any more; the server is heard to its end.
                    client.shutdown(socket.SHUT_RDWR)
                    server.sendall(data)
                    server.shutdown(socket.SHUT_WR)
                    break
                server.sendall(data)
        answers.join()
        client.close()
        server.close()


def _copy(server: socket.socket, client: socket.socket) -> None:
    with suppress(OSError):
        while data := server.recv(65536):
            with suppress(OSError):
                client.sendall(data)
        client.shutdown(socket.SHUT_RDWR)


@contextmanager
def proxied(url: str) -> Iterator[tuple[Proxy, str]]:
    parsed = make_url(url)
    proxy = Proxy(str(parsed.query["host"]))
    query = {name: value for name, value in parsed.query.items() if name != "host"}
    through = parsed.set(host="127.0.0.1", port=proxy.port, query={**query, "sslmode": "disable", "gssencmode": "disable"})
    try:
        yield proxy, through.render_as_string(hide_password=False)
    finally:
        proxy.close()
