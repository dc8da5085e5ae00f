-- Creates the two roles of the service, and makes the migrations role the owner of the schema. Run it as a superuser in the
-- service's database, new or with tables that a superuser owns. It can be repeated. It sets no passwords.
--
-- quartermaster_migrations owns and changes the schema. quartermaster_app reads and writes rows with the privileges that
-- `quartermaster migrate` grants; it owns nothing, and cannot create databases or roles or read server files.
DO $$
DECLARE
    change text;
    wanted text;
BEGIN
    FOREACH wanted IN ARRAY ARRAY['quartermaster_migrations', 'quartermaster_app'] LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = wanted) THEN
            EXECUTE format('CREATE ROLE %I', wanted);
        END IF;
        EXECUTE format(
            'ALTER ROLE %I LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS', wanted
        );
    END LOOP;
    -- The owner of the database also owns its schema `public`.
    EXECUTE format('ALTER DATABASE %I OWNER TO quartermaster_migrations', current_database());
    REVOKE CREATE ON SCHEMA public FROM PUBLIC;
    FOR change IN
        SELECT format('ALTER TABLE %s OWNER TO quartermaster_migrations', c.oid::regclass)
        FROM pg_class c
        WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'm')
            AND c.relowner <> 'quartermaster_migrations'::regrole
        UNION ALL
        SELECT format('ALTER ROUTINE %s OWNER TO quartermaster_migrations', p.oid::regprocedure)
        FROM pg_proc p
        WHERE p.pronamespace = 'public'::regnamespace AND p.proowner <> 'quartermaster_migrations'::regrole
    LOOP
        EXECUTE change;
    END LOOP;
END
$$;
