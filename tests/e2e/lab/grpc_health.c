/* A gRPC health service: grpc-health PORT FILE answers NOT_SERVING while FILE exists, else
   SERVING. It reads no request: whatever stream ends is answered. One process per connection. */
#include <arpa/inet.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { DATA, HEADERS, SETTINGS = 4, PING = 6 };

static void leave(int s) { (void)s; _exit(0); }

static void take(int fd, unsigned char *to, int size) {
  while (size > 0) {
    int got = read(fd, to, size);
    if (got <= 0) _exit(0);
    to += got;
    size -= got;
  }
}

static void give(int fd, int kind, int flags, int stream, const void *body, int size) {
  unsigned char frame[9 + 64] = {0, 0, size, kind, flags, stream >> 24, stream >> 16,
                                 stream >> 8, stream};
  memcpy(frame + 9, body, size);
  if (write(fd, frame, 9 + size) != 9 + size) _exit(0);
}

static void answer(int fd, int stream, int serving) {
  static const char head[] = "\x88\x00\x0c" "content-type" "\x10" "application/grpc";
  static const char tail[] = "\x00\x0b" "grpc-status" "\x01" "0";
  char data[] = {0, 0, 0, 0, 2, 8, serving ? 1 : 2};
  give(fd, HEADERS, 4, stream, head, sizeof head - 1);
  give(fd, DATA, 0, stream, data, sizeof data);
  give(fd, HEADERS, 5, stream, tail, sizeof tail - 1);
}

static void serve(int fd, const char *ill) {
  unsigned char head[24], body[1 << 14];
  take(fd, head, 24);
  give(fd, SETTINGS, 0, 0, "", 0);
  for (;;) {
    take(fd, head, 9);
    int size = head[0] << 16 | head[1] << 8 | head[2], flags = head[4];
    int stream = head[5] << 24 | head[6] << 16 | head[7] << 8 | head[8];
    if (size > (int)sizeof body) _exit(0);
    take(fd, body, size);
    if (head[3] == SETTINGS && !(flags & 1)) give(fd, SETTINGS, 1, 0, "", 0);
    if (head[3] == PING && !(flags & 1)) give(fd, PING, 1, 0, body, 8);
    if ((head[3] == DATA || head[3] == HEADERS) && flags & 1)
      answer(fd, stream, access(ill, F_OK) != 0);
  }
}

int main(int argc, char **argv) {
  struct sockaddr_in any = {.sin_family = AF_INET};
  int on = 1, listening = socket(AF_INET, SOCK_STREAM, 0);
  if (argc != 3) return 2;
  any.sin_port = htons(atoi(argv[1]));
  signal(SIGTERM, leave);
  signal(SIGCHLD, SIG_IGN);
  setsockopt(listening, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(listening, (void *)&any, sizeof any) || listen(listening, 64)) return 1;
  for (;;) {
    int fd = accept(listening, 0, 0);
    if (fd >= 0 && fork() == 0) serve(fd, argv[2]);
    close(fd);
  }
}
