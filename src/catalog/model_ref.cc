#include "catalog/model_ref.h"
