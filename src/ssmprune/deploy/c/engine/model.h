#ifndef MODEL_H
#define MODEL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MODEL_INPUTS @INPUTS@ /* @ABOUT_INPUTS@ */
#define MODEL_OUTPUTS @OUTPUTS@ /* logits */
#if RETRIEVAL
#define MODEL_FEATURES @WIDTH@ /* numbers that stand for a document */
#endif

/* Steps that are computed together; more is faster, fewer need less of the stack (about @STACK@ bytes a step). */
#ifndef MODEL_BLOCK
#define MODEL_BLOCK 16
#endif
#if BIDIRECTIONAL

/* This model looks at a sequence from both ends, so it needs the whole of it and room for that many floats. */
#define MODEL_WORKSPACE(length) ((size_t)(length) * @WORKSPACE@)
#else

/* A stream: all that is remembered from one step to the next. Copy it to branch off. */
typedef struct {
    float states[@STATES@];
#if MEAN
    float total[@ROW@]; /* of the features of all steps */
    uint32_t steps;
#endif
} model_state;

/* Start a stream. */
void model_init(model_state *state);
#endif
#if RETRIEVAL

/* `out` gets MODEL_FEATURES numbers that stand for a document; two documents are compared by model_compare. */
void model_compare(const float *a, const float *b, float *logits);
#endif
#if BIDIRECTIONAL

/* A sequence of `length` steps, MODEL_INPUTS numbers (or one token) each. The first `valid` steps count; what follows
   is padding, which the layers see as the trained model does. */
#if EVERY_STEP
/* `out` gets MODEL_OUTPUTS logits for each of the valid steps. */
#endif
void model_run(float *workspace, const model_input *in, size_t length, size_t valid, float *out);
#else

/* One more step, MODEL_INPUTS numbers (or one token). `out`, unless NULL, gets the answer to the sequence so far. */
void model_step(model_state *state, const model_input *in, float *out);

/* The next `length` steps at once: what as many calls of model_step do, faster.*/
#if EVERY_STEP
/* `out`, unless NULL, gets MODEL_OUTPUTS logits for each of them. */
#else
/* `out`, unless NULL, gets the answer to the sequence so far. */
#endif
void model_run(model_state *state, const model_input *in, size_t length, float *out);
#endif

#ifdef __cplusplus
}
#endif
#endif
