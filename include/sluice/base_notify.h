/* Tells a service manager how the process is (systemd's notification protocol, sd_notify(3)): a datagram to the socket
 * that NOTIFY_SOCKET names.  Main thread. */
#ifndef SLUICE_BASE_NOTIFY_H
#define SLUICE_BASE_NOTIFY_H

/* Sends assignments such as "READY=1\nSTATUS=...", separated by newlines.  0 also where nobody asked to be told;
 * -EINVAL: NOTIFY_SOCKET is no socket's name; else what sending said. */
int notify(const char *state);

#endif
