#!/usr/bin/env python3
"""The server as a service: what systemd is told, the log in the journal, the unit that `make install` installs.
SLUICE_BUILD: the directory with sluiced and sluice."""
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(TOP, "tests", "nfs"))
import harness
from harness import Server, check, eq


def told(address):
    """What a server that is started and stopped says to NOTIFY_SOCKET, and whether it served at READY."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    listener.bind(address)
    listener.settimeout(20)
    os.environ["NOTIFY_SOCKET"] = address.replace("\0", "@") if isinstance(address, str) else address
    server = Server("--cache", "64Mi", "--metrics", "off")
    try:
        server.start()
        first = listener.recv(1000).decode()
        with server.connect() as nfs:
            nfs.null()
        problem = server.stop()
        return first, listener.recv(1000).decode(), problem
    finally:
        del os.environ["NOTIFY_SOCKET"]
        server.close()
        listener.close()


def readiness_and_the_end_are_told():
    with tempfile.TemporaryDirectory() as folder:
        for address in (os.path.join(folder, "notify"), f"\0sluice-test-{os.getpid()}"):
            first, last, problem = told(address)
            check(first.startswith("READY=1\n"), first)
            check(last.startswith("STOPPING=1\n"), last)
            eq(problem, None)


def a_wrong_notify_socket_is_no_reason_not_to_serve():
    for wrong in ("relative", "@", "/nonexistent/socket", "/" + "x" * 200):
        os.environ["NOTIFY_SOCKET"] = wrong
        server = Server("--cache", "64Mi", "--metrics", "off")
        try:
            server.start()
            eq(server.stop(), None)
            check(b"NOTIFY_SOCKET" in server.stderr(), server.stderr())
        finally:
            del os.environ["NOTIFY_SOCKET"]
            server.close()


def the_journal_gets_priorities_and_nobody_else():
    for own in (True, False):
        server = Server("--cache", "64Mi", "--metrics", "off")
        log = os.path.join(server.folder, "stderr.1")
        with open(log, "w") as file:
            st = os.fstat(file.fileno())
        for start in range(2, 21):  # should the first port be somebody's
            os.link(log, os.path.join(server.folder, f"stderr.{start}"))
        os.environ["JOURNAL_STREAM"] = f"{st.st_dev}:{st.st_ino if own else st.st_ino + 1}"
        try:
            server.start()
            server.stop()
            lines = server.stderr().splitlines()
            check(lines, "something is logged")
            for line in lines:
                check(re.match(rb"<[3-7]>\d{4}-" if own else rb"\d{4}-", line), line)
        finally:
            del os.environ["JOURNAL_STREAM"]
            server.close()


def the_unit_is_right():
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["make", "-s", "-C", TOP, "install", f"DESTDIR={folder}", f"BUILD={os.path.relpath(harness.BUILD, TOP)}"],
                       check=True, stdout=subprocess.DEVNULL)
        unit = os.path.join(folder, "usr/local/lib/systemd/system/sluice.service")
        with open(unit) as file:
            text = file.read()
        check("ExecStart=/usr/local/sbin/sluiced --config /etc/sluice.conf\n" in text, text)
        for page in ("man8/sluice.8", "man8/sluiced.8", "man5/sluice.conf.5"):
            check(os.path.getsize(os.path.join(folder, "usr/local/share/man", page)) > 1000, page)
        # the configuration that goes with it is one that the server takes
        subprocess.run([os.path.join(folder, "usr/local/sbin/sluiced"), "--config", os.path.join(folder, "etc/sluice.conf"),
                        "--check-config"], check=True, stdout=subprocess.DEVNULL)
        if not shutil.which("systemd-analyze"):
            print("# systemd-analyze is not here: the unit's words are not checked")
            return
        here = os.path.join(folder, "sluice.service")
        with open(here, "w") as file:
            file.write(text.replace("/usr/local/sbin/sluiced", os.path.join(folder, "usr/local/sbin/sluiced")))
        done = subprocess.run(["systemd-analyze", "verify", "--man=no", here], capture_output=True, text=True)
        wrong = [line for line in (done.stdout + done.stderr).splitlines() if "sluice.service" in line]
        eq(wrong, [], "systemd-analyze verify")


def the_manual_says_what_the_help_says():
    subprocess.run([sys.executable, "-B", os.path.join(TOP, "docs", "make-man"), "--check"], check=True)
    if not shutil.which("groff"):
        print("# groff is not here: the manual pages' markup is not checked")
        return
    for page in ("sluice.8", "sluiced.8", "sluice.conf.5"):
        done = subprocess.run(["groff", "-mdoc", "-Tutf8", "-ww", os.path.join(TOP, "docs", page)], capture_output=True)
        eq(done.stderr.decode(), "", page)
        check(b"SEE ALSO" in re.sub(rb".\x08", b"", done.stdout), page)


TESTS = [readiness_and_the_end_are_told, a_wrong_notify_socket_is_no_reason_not_to_serve, the_journal_gets_priorities_and_nobody_else,
         the_unit_is_right,
         the_manual_says_what_the_help_says]


def main():
    passed = failed = 0
    for function in TESTS:
        try:
            function()
            print(f"ok {function.__name__.replace('_', ' ')}", flush=True)
            passed += 1
        except Exception as error:
            print(f"not ok {function.__name__.replace('_', ' ')}: {error}", flush=True)
            failed += 1
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
