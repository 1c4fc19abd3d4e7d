#ifndef WORDS_H
#define WORDS_H

/* A classifier of the family S5, written by ssmprune 0.3.0.
   From: words.safetensors (SHA-256 0cef9a11f4d08768aa8585f8e91b76b8fe19a4eb97396fed8540671fd37aef51).
   Inputs are taken as they come: scale them as those were that the model was trained on.
   Logit k is that of class k, as the training labels count classes, from 0; the largest logit names the class.
   Re-entrant: nothing is kept outside the memory that a caller hands in, so threads may call at once, each with a state
   or a workspace that no other thread is using. */

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WORDS_DIGEST 0x71811f6e /* of both files, which belong together */
#define WORDS_INPUTS 5 /* different tokens */
#define WORDS_OUTPUTS 2 /* logits */
#define WORDS_FEATURES 3 /* numbers that represent a document */
#define WORDS_ROW 8
#define WORDS_STATES 4 /* floats */
typedef int32_t words_input; /* a token */

/* Steps that are computed together; more is faster, fewer need less of the stack (about 160 bytes per step and, unless
   it is a single step, up to 512 for weights as floats). */
#ifndef WORDS_BLOCK
#define WORDS_BLOCK 16
#endif

/* A stream, 68 bytes: everything that is carried from one step to the next. Copy it to start a branch. */
typedef struct {
    float states[WORDS_STATES];
    float total[WORDS_ROW]; /* the features of all steps, added up */
    /* What rounding took from each sum, in 32,000ths of the most that it can take at once. */
    int16_t rounded_off[WORDS_ROW];
    uint32_t steps; /* so far; the count holds up to four billion */
} words_state;

/* Start a stream. */
void words_init(words_state *state);

/* The logits of two documents, each represented by WORDS_FEATURES numbers. */
void words_compare(const float *a, const float *b, float *logits);

/* The next step, one token. `out`, unless NULL, gets WORDS_FEATURES numbers that stand for the document, of the sequence so far. */
void words_step(words_state *state, const words_input *in, float *out);

/* The next `length` steps: the same as that many calls of words_step, but faster. `out`, unless NULL, gets
   WORDS_FEATURES numbers that stand for the document, of the sequence so far. */
void words_run(words_state *state, const words_input *in, size_t length, float *out);

/* The version of ssmprune, the digest above, and the checkpoint with its SHA-256. */
extern const char words_id[];

#ifdef SSMPRUNE_SELF_TEST
/* 0 if the logits of a known input are right to 1e-5 of the largest; else the largest deviation. */
float words_self_test(void);
#endif

#ifdef __cplusplus
}
#endif
#endif
