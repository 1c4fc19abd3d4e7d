#ifndef BOTH_H
#define BOTH_H

/* A classifier of the family S4D, written by ssmprune 0.3.0.
   From: both.safetensors (SHA-256 da90fe91724349901fac54410cf30977919b136afdd0da63a249aa780c8cfae7).
   Inputs are taken as they come: scale them as those were that the model was trained on.
   Logit k is that of class k, as the training labels count classes, from 0; the largest logit names the class.
   Re-entrant: nothing is kept outside the memory that a caller hands in, so threads may call at once, each with a state
   or a workspace that no other thread is using. */

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define BOTH_DIGEST 0xc0431bd8 /* of both files, which belong together */
#define BOTH_INPUTS 1 /* numbers per step */
#define BOTH_OUTPUTS 2 /* logits */
#define BOTH_FLOATS_PER_STEP 16
typedef float both_input;

/* Steps that are computed together; more is faster, fewer need less of the stack (about 128 bytes per step). */
#ifndef BOTH_BLOCK
#define BOTH_BLOCK 16
#endif

/* This model reads a sequence from both ends, so it needs all of it, and a workspace of this many floats. */
#define BOTH_WORKSPACE(length) ((size_t)(length) * BOTH_FLOATS_PER_STEP)

/* A sequence of `length` steps, BOTH_INPUTS numbers each. The first `valid` steps count, 1 <= valid <= length; the rest is
   padding, which the layers treat as those of the trained model do. `out` gets BOTH_OUTPUTS logits.
   A `valid` beyond `length` is taken for `length`; if it is 0, `out` stays as it is. */
void both_run(float *workspace, const both_input *in, size_t length, size_t valid, float *out);

/* The version of ssmprune, the digest above, and the checkpoint with its SHA-256. */
extern const char both_id[];

#ifdef SSMPRUNE_SELF_TEST
/* 0 if the logits of a known input are right to 1e-5 of the largest; else the largest deviation. */
float both_self_test(void);
#endif

#ifdef __cplusplus
}
#endif
#endif
