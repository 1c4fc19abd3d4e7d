/* What JavaScript calls: one stream, which lives in the memory of the module. Another instance is another stream. */

#include "model.h"

#define EXPORT(name) __attribute__((export_name(name)))

static model_state state;
static model_input in[PER_STEP];
static LOGIT out[MODEL_OUTPUTS];

/* Where the inputs of a step are written, where its logits are read, and the text that says which model this is. */
EXPORT("input") model_input *input_at(void) { return in; }
EXPORT("logits") LOGIT *logits_at(void) { return out; }
EXPORT("id") const char *id_at(void) { return model_id; }

EXPORT("reset") void start(void) {
    model_init(&state);
    for (int i = 0; i < MODEL_OUTPUTS; i++) out[i] = 0;
}

EXPORT("step") void next(void) { model_step(&state, in, out); }
