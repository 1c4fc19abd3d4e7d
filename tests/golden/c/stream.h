#ifndef STREAM_H
#define STREAM_H

/* A classifier of the family S5, written by ssmprune 0.3.0.
   From: stream.safetensors (SHA-256 c13612dba4f2765960caa7cfbc6526337ee6f7d7d40a2ba8a02f9ce422833910).
   Inputs are taken as they come: scale them as those were that the model was trained on.
   Logit k is that of class k, as the training labels count classes, from 0; the largest logit names the class.
   Re-entrant: nothing is kept outside the memory that a caller hands in, so threads may call at once, each with a state
   or a workspace that no other thread is using. */

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define STREAM_DIGEST 0x4e66aa44 /* of both files, which belong together */
#define STREAM_INPUTS 2 /* numbers per step */
#define STREAM_OUTPUTS 3 /* logits */
#define STREAM_ROW 8
#define STREAM_STATES 6 /* floats */
typedef float stream_input;

/* Steps that are computed together; more is faster, fewer need less of the stack (about 128 bytes per step). */
#ifndef STREAM_BLOCK
#define STREAM_BLOCK 16
#endif

/* A stream, 76 bytes: everything that is carried from one step to the next. Copy it to start a branch. */
typedef struct {
    float states[STREAM_STATES];
    float total[STREAM_ROW]; /* the features of all steps, added up */
    /* What rounding took from each sum, in 32,000ths of the most that it can take at once. */
    int16_t rounded_off[STREAM_ROW];
    uint32_t steps; /* so far; the count holds up to four billion */
} stream_state;

/* Start a stream. */
void stream_init(stream_state *state);

/* The next step, STREAM_INPUTS numbers. `out`, unless NULL, gets STREAM_OUTPUTS logits, of the sequence so far. */
void stream_step(stream_state *state, const stream_input *in, float *out);

/* The next `length` steps: the same as that many calls of stream_step, but faster. `out`, unless NULL, gets
   STREAM_OUTPUTS logits, of the sequence so far. */
void stream_run(stream_state *state, const stream_input *in, size_t length, float *out);

/* The version of ssmprune, the digest above, and the checkpoint with its SHA-256. */
extern const char stream_id[];

#ifdef SSMPRUNE_SELF_TEST
/* 0 if the logits of a known input are right to 1e-5 of the largest; else the largest deviation. */
float stream_self_test(void);
#endif

#ifdef __cplusplus
}
#endif
#endif
