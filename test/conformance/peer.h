/* Between the harness and the peers. */
#ifndef CONFORM_PEER_H
#define CONFORM_PEER_H

#include <stdbool.h>

const char* program_path(void);
int serve(int channel); /* what a peer does, to its end */
void end_peers(void);   /* in good order; each must exit with 0 */
void kill_peers(void);
bool peers_ended_in_order(void);

#endif
