# The batch mode of chat templates, which llorch-tokenize calls.
target_sources(llorch_tools PRIVATE template_batch.cc)
target_sources(llorch_tools PUBLIC FILE_SET HEADERS FILES template_batch.h)
llorch_test(template_batch_test SOURCES template_batch_test.cc MODULES tools template)
