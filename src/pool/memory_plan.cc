#include "pool/memory_plan.h"
