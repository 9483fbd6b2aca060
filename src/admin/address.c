#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>

#include "admin/commands.h"

bool address_parse(const char *text, struct sockaddr_storage *address)
{
    struct sockaddr_in *four = (struct sockaddr_in *)address;
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)address;
    memset(address, 0, sizeof *address);
    if (inet_pton(AF_INET, text, &four->sin_addr) == 1)
        address->ss_family = AF_INET;
    else if (inet_pton(AF_INET6, text, &six->sin6_addr) == 1)
        address->ss_family = AF_INET6;
    else
        return false;
    return true;
}

const char *address_text(char to[ADDRESS_ROOM], const struct sockaddr_storage *address)
{
    strcpy(to, "unknown");
    if (address->ss_family == AF_INET)
        inet_ntop(AF_INET, &((const struct sockaddr_in *)address)->sin_addr, to, ADDRESS_ROOM);
    else if (address->ss_family == AF_INET6)
        inet_ntop(AF_INET6, &((const struct sockaddr_in6 *)address)->sin6_addr, to, ADDRESS_ROOM);
    return to;
}
