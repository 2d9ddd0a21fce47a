#include "contract/model_entry.h"
