"""What was measured, on its way between the process, models' files and database files.

`schema`, `hdf5`, `merge` and `database` import no Keras, so that files can be read without it.
"""
