#ifndef MODEL_H
#define MODEL_H

/* A classifier of the family @FAMILY@ in whole numbers, written by ssmprune @VERSION@.
   From: @ORIGIN@.
#if TOKENS
   Inputs are tokens.
#else
   Inputs are samples of 16 bits; the model was trained on @INPUTS_ARE@.
#endif
   Logit k is that of class k, as the training labels count classes, from 0; the largest logit names the class. Logits
   are whole numbers: times MODEL_LOGIT they are those of the trained model.
   There is no operation on floats in this file, and none that can overflow, whatever the inputs are: the same inputs
   give the same bits with any compiler on any processor.
   Re-entrant: nothing is kept outside the memory that a caller hands in, so threads may call at once, each with a state
   or a workspace that no other thread is using. */

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#include "public_sizes.h"
#if TOKENS
typedef int32_t model_input; /* a token */
#else
typedef int16_t model_input; /* a sample */

#ifdef MODEL_FLOATS
/* The samples of a step, MODEL_INPUTS numbers as the model was trained on: the one function that needs floats. */
void model_samples(const float *x, model_input *in);
#endif
#endif
#if BIDIRECTIONAL

/* This model reads a sequence from both ends, so it needs all of it, and a workspace of this many int32_t. */
#define MODEL_WORKSPACE(length) ((size_t)(length) * MODEL_NUMBERS_PER_STEP)
#else

/* A stream, @STATE_BYTES@ bytes: everything that is carried from one step to the next. Copy it to start a branch. */
typedef struct {
    int32_t states[MODEL_STATES];
#if MEAN
    int64_t total[MODEL_WIDTH]; /* the features of all steps, added up exactly */
    uint32_t steps;             /* so far; those after the first two billion no longer count */
#endif
} model_state;

/* Start a stream. */
void model_init(model_state *state);
#endif
#if RETRIEVAL

/* The logits of two documents, each represented by MODEL_FEATURES numbers. */
void model_compare(const int32_t *a, const int32_t *b, int32_t *logits);
#endif
#if BIDIRECTIONAL

/* A sequence of `length` steps, @A_STEP@ each. The first `valid` steps count, 1 <= valid <= length; the rest is
   padding, which the layers treat as those of the trained model do. `out` gets @OUT_WHOLE@.
   A `valid` beyond `length` is taken for `length`; if it is 0, `out` stays as it is. */
void model_run(int32_t *workspace, const model_input *in, size_t length, size_t valid, int32_t *out);
#else

/* The next step, @A_STEP@. `out`, unless NULL, gets @OUT_STEP@. */
void model_step(model_state *state, const model_input *in, int32_t *out);

/* The next `length` steps: the same as that many calls of model_step. `out`, unless NULL, gets
   @OUT_RUN@. */
void model_run(model_state *state, const model_input *in, size_t length, int32_t *out);
#endif

/* The version of ssmprune, the digest above, and the checkpoint with its SHA-256. */
extern const char model_id[];

#ifdef SSMPRUNE_SELF_TEST
/* 0 if the logits of a known input are right to the bit; else the largest deviation. */
int32_t model_self_test(void);
#endif

#ifdef __cplusplus
}
#endif
#endif
