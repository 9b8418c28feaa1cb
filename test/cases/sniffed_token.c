/*
 * Traffic is not encrypted (security.md): who can read the wire between two nodes sees the token
 * that one of them presents. Under WireGuard he sees none of it, and the library needs nothing for
 * that but the tunnel's address in CMI_ADDRESS. Two network namespaces with a cable between them; a
 * reader of raw frames at one end of it looks for the token's bytes.
 */
#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <net/if.h>
#include <netpacket/packet.h>
#include <sched.h>
#include <stdarg.h>
#include <sys/socket.h>

#include "case.h"

enum { kFrame = 65536, kObject = 4096, kPiece = 8, kPieces = 8, kSteps = 400 };

/* Shared by all processes of the case. The first bytes of a token say what it is, as those of all
 * tokens do; behind them stand its own. */
struct wire {
  unsigned char handle[kObject], token[kObject];
  volatile int has_token, ready, finish;
  volatile long frames, pieces; /* seen; those with a piece of the token */
};
static struct wire* wire;
static pid_t other_network; /* holds the importer's */

static int run(const char* format, ...) {
  char words[1024], command[1200];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(words, sizeof words, format, arguments);
  va_end(arguments);
  snprintf(command, sizeof command, "PATH=/usr/sbin:/sbin:$PATH; { %s; } >/dev/null 2>&1", words);
  return system(command) == 0;
}

static void hold_network(void) {
  other_network = fork();
  EXPECT(other_network >= 0);
  if (other_network != 0) return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (unshare(CLONE_NEWNET) == 0) wire->ready = 1;
  for (;;) pause();
}

static void enter_other_network(void) {
  char name[64];
  int fd;
  snprintf(name, sizeof name, "/proc/%d/ns/net", (int)other_network);
  fd = open(name, O_RDONLY | O_CLOEXEC);
  EXPECT(fd >= 0 && setns(fd, CLONE_NEWNET) == 0);
  close(fd);
}

static void lay_cable(void) {
  if (unshare(CLONE_NEWNET) != 0) skip("no network namespaces of our own here");
  wire = mmap(NULL, sizeof *wire, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  EXPECT(wire != MAP_FAILED);
  hold_network();
  while (!wire->ready) pause_ms(1);
  if (!run("ip link add cable0 type veth peer name cable1 netns %d", (int)other_network))
    skip("no veth here");
  EXPECT(run("ip link set lo up && ip addr add 10.77.0.1/24 dev cable0 && ip link set cable0 up"));
  EXPECT(
      run("nsenter -t %d -n ip link set lo up && nsenter -t %d -n ip addr add 10.77.0.2/24 dev "
          "cable1 && nsenter -t %d -n ip link set cable1 up",
          (int)other_network, (int)other_network, (int)other_network));
}

/* Of the kernel, or a process of wireguard-go that ends with us. */
static void make_tunnel_end(const char* name) {
  char socket_name[64];
  int i;
  if (run("ip link add %s type wireguard", name)) return;
  if (!run("command -v wireguard-go && test -c /dev/net/tun"))
    skip("neither this kernel nor a program has WireGuard");
  snprintf(socket_name, sizeof socket_name, "/var/run/wireguard/%s.sock", name);
  unlink(socket_name); /* of a run that was killed */
  if (fork() == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    EXPECT(freopen("/dev/null", "w", stderr) != NULL && freopen("/dev/null", "w", stdout) != NULL);
    execlp("wireguard-go", "wireguard-go", "-f", name, (char*)NULL);
    _exit(1);
  }
  for (i = 0; i < kSteps && access(socket_name, F_OK) != 0; i++) pause_ms(50);
  if (i == kSteps) skip("wireguard-go does not begin");
}

static void set_up_tunnel_end(void* importer) {
  const int there = importer != NULL;
  const char *name = there ? "cmi_wg1" : "cmi_wg0", *folder = getenv("CASE_FOLDER");
  make_tunnel_end(name);
  EXPECT(run(
      "wg set %s listen-port %d private-key %s/key%d peer $(cat %s/key%d.pub) allowed-ips "
      "10.78.0.%d/32 endpoint 10.77.0.%d:%d",
      name, 51820 + there, folder, there, folder, !there, 2 - there, 2 - there, 51820 + !there));
  EXPECT(run("ip addr add 10.78.0.%d/24 dev %s && ip link set %s up", 1 + there, name, name));
}

/* Each process with a part in it stays until the case ends: wireguard-go is its child. */
static void lay_tunnel(void) {
  const char* folder = getenv("CASE_FOLDER");
  int end;
  if (!run("command -v wg")) skip("there is no wg");
  for (end = 0; end < 2; end++)
    EXPECT(run("umask 077; wg genkey >%s/key%d && wg pubkey <%s/key%d >%s/key%d.pub", folder, end,
               folder, end, folder, end));
  set_up_tunnel_end(NULL);
  wire->ready = 0;
  if (fork() == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    enter_other_network();
    set_up_tunnel_end(wire);
    wire->ready = 1;
    for (;;) pause();
  }
  for (end = 0; end < kSteps && !wire->ready; end++) pause_ms(50);
  EXPECT(wire->ready);
}

static int has_piece(const unsigned char* frame, size_t size) {
  int i;
  for (i = 1; i <= kPieces; i++) {
    const unsigned char* const piece = wire->token + 16 + i * kPiece;
    if (memmem(wire->handle, kObject, piece, kPiece) == NULL &&
        memmem(frame, size, piece, kPiece) != NULL)
      return 1;
  }
  return 0;
}

static pid_t start_reader(void) {
  static unsigned char frame[kFrame];
  const pid_t reader = fork();
  int fd;
  EXPECT(reader >= 0);
  if (reader != 0) {
    while (!wire->ready) pause_ms(1);
    return reader;
  }
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  fd = socket(AF_PACKET, SOCK_RAW, htons(ETH_P_ALL));
  EXPECT(fd >= 0);
  wire->ready = 1;
  for (;;) {
    struct sockaddr_ll from;
    socklen_t length = sizeof from;
    char name[IF_NAMESIZE] = "";
    const ssize_t n = recvfrom(fd, frame, sizeof frame, 0, (struct sockaddr*)&from, &length);
    if (n <= 0 || if_indextoname((unsigned)from.sll_ifindex, name) == NULL) continue;
    if (strcmp(name, "cable0") != 0) continue; /* not what is in the tunnel's own end */
    wire->frames++;
    if (wire->has_token && has_piece(frame, (size_t)n)) wire->pieces++;
  }
}

static void copy_object(unsigned char* to, const void* object, cmi_seg seg, int what) {
  size_t size = 0, room = sizeof size;
  EXPECT(CALL(attr_get)(ctxt, seg, what, &size, &room) == 0 && size <= kObject);
  memcpy(to, object, size);
}

static void be_home(void* address) {
  cmi_seg seg;
  char* view;
  setenv("CMI_ADDRESS", address, 1);
  begin("home");
  seg = CALL(seg_get)(ctxt, 4 * PAGE, 0);
  EXPECT(seg != CMI_SEG_INVALID);
  view = CALL(seg_at)(ctxt, seg, NULL, 0);
  EXPECT(view != NULL);
  *(uint64_t*)(view + PAGE) = 1;
  EXPECT(cmi_wmb() == 0);
  copy_object(wire->handle, CALL(seg_exp)(ctxt, seg, 0), seg, CMI_ATTR_RSEG_SIZE);
  copy_object(wire->token, CALL(tok_new)(ctxt, seg, CMI_NADDR_ANY, CMI_ACC_READ | CMI_ACC_WRITE),
              seg, CMI_ATTR_TOKEN_SIZE);
  wire->has_token = 1;
  while (!wire->finish) pause_ms(5);
  EXPECT(CALL(fini)(ctxt) == 0);
}

static void be_importer(void* address) {
  cmi_ds ds;
  cmi_seg seg;
  char* view;
  uint64_t word = 0;
  enter_other_network();
  setenv("CMI_ADDRESS", address, 1);
  begin("importer");
  seg = CALL(seg_imp)(ctxt, (cmi_rseg*)wire->handle);
  EXPECT(seg != CMI_SEG_INVALID);
  memset(&ds, 0, sizeof ds);
  ds.op.token.tok = (cmi_token*)wire->token;
  EXPECT(CALL(seg_ctl)(ctxt, seg, CMI_SEG_TOKEN, &ds) == 0);
  EXPECT(CALL(cmi_enb)(ctxt, 1) == 0);
  view = attach(seg);
  EXPECT(load(view + PAGE, &word) == 0 && word == 1);
  EXPECT(store(view, 7) == 0 && cmi_wmb() == 0);
  EXPECT(CALL(fini)(ctxt) == 0);
}

/* Frames with a piece of the token that were on the cable. */
static long share(char* home_address, char* address) {
  const pid_t reader = (memset(wire, 0, sizeof *wire), start_reader());
  const pid_t home = fork();
  int status = -1;
  long pieces;
  EXPECT(home >= 0);
  if (home == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    be_home(home_address);
    _exit(0);
  }
  while (!wire->has_token && waitpid(home, &status, WNOHANG) == 0) pause_ms(5);
  EXPECT(wire->has_token);
  EXPECT(in_child(be_importer, address) == 0);
  wire->finish = 1;
  EXPECT(waitpid(home, &status, 0) == home && status == 0);
  EXPECT(wire->frames > 0);
  pieces = wire->pieces;
  kill(reader, SIGKILL);
  waitpid(reader, NULL, 0);
  return pieces;
}

int main(void) {
  char clear[2][16] = {"10.77.0.1", "10.77.0.2"}, tunnel[2][16] = {"10.78.0.1", "10.78.0.2"};
  lay_cable();
  EXPECT(share(clear[0], clear[1]) > 0);
  lay_tunnel();
  EXPECT(share(tunnel[0], tunnel[1]) == 0);
  unlink("/var/run/wireguard/cmi_wg0.sock");
  unlink("/var/run/wireguard/cmi_wg1.sock");
  return 0;
}
